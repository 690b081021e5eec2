"""Weights of a player for other programs, and theirs for it: state dicts of torch.save, and safetensors."""
import collections
import zipfile

import pytest
import safetensors.torch
import torch

import steptape
from classification import batch, classifier
from trace_files_test import replaying_program
from twins import bits

FORMATS = ["pt", "safetensors"]


def read(path):
    return torch.load(path, weights_only=True) if path.suffix == ".pt" else safetensors.torch.load_file(path)


def write(tensors, path):
    if path.suffix == ".pt":
        torch.save(tensors, path)
    else:
        safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_module_takes_what_a_player_saved(tmp_path, suffix):
    _, model, _, path = replaying_program(tmp_path)
    player = steptape.load(path)
    player["train"](*batch(50))
    weights = tmp_path / f"weights.{suffix}"
    player.save_weights(weights, of="model")
    _, other, _ = classifier()
    other.load_state_dict(read(weights))  # strict
    for name, tensor in other.state_dict().items():
        assert bits(tensor) == bits(player.tensor(f"model.{name}")), name
    assert bits(other.state_dict()) != bits(model.state_dict())


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_player_takes_what_a_module_saved(tmp_path, suffix):
    step, model, _, path = replaying_program(tmp_path)
    for i in range(3):
        step(*batch(60 + i))
    weights = tmp_path / f"weights.{suffix}"
    write(model.state_dict(), weights)  # an OrderedDict with attributes
    player = steptape.load(path)
    player.load_weights(weights, of="model")
    for name, tensor in model.state_dict().items():
        assert bits(tensor) == bits(player.tensor(f"model.{name}")), name


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_buffer_that_a_state_dict_leaves_out_is_left_out(tmp_path, suffix):
    """It is state of the player all the same: of `everything`, and of the trace."""
    model = torch.nn.Linear(3, 2)
    model.register_buffer("kept", torch.zeros(2))
    model.register_buffer("passing", torch.zeros(2), persistent=False)

    def train(x):
        with torch.no_grad():
            model.passing += model(x).sum(0)
            model.kept += model.passing
        return model.passing.clone()

    step = steptape.wrap(train, model=model)
    for i in range(8):
        step(torch.full((4, 3), i / 8))
    step.save(tmp_path / "train.tape")
    player = steptape.load(tmp_path / "train.tape")

    some, all_of_it = tmp_path / f"some.{suffix}", tmp_path / f"all.{suffix}"
    player.save_weights(some, of="model")
    assert set(read(some)) == {"weight", "bias", "kept"}
    model.load_state_dict(read(some))  # strict
    write(model.state_dict(), some)
    player.save_weights(all_of_it, of="model", everything=True)
    assert set(read(all_of_it)) >= {"weight", "bias", "kept", "passing"}
    passing = player.tensor("model.passing").clone()
    player["train"](torch.ones(4, 3))
    player.load_weights(some, of="model")  # strict
    assert bits(player.tensor("model.passing")) != bits(passing)
    player.load_weights(all_of_it, of="model")
    assert bits(player.tensor("model.passing")) == bits(passing)


def test_a_dict_of_dicts_and_parameters(tmp_path):
    _, model, _, path = replaying_program(tmp_path)
    weights = tmp_path / "weights.pt"
    torch.save({"model": dict(model.named_parameters()) | dict(model.named_buffers()), "epoch": 3, "note": "x"},
               weights)
    player = steptape.load(path)
    with pytest.raises(steptape.InvalidArgument, match="epoch: no state has this name"):
        player.load_weights(weights)
    player.load_weights(weights, strict=False)


@pytest.mark.parametrize("suffix", FORMATS)
def test_everything_as_recorded(tmp_path, suffix):
    _, _, _, path = replaying_program(tmp_path)
    player = steptape.load(path)
    weights = tmp_path / f"weights.{suffix}"
    player.save_weights(weights, everything=True)
    found = read(weights)
    for spec in player.state():
        assert bits(found[spec["path"]]) == bits(player.tensor(spec["path"])), spec["path"]
    for name, number in player.scalars().items():
        assert found[name].item() == number, name
    assert found["generator.default"].dtype == torch.uint8

    player["train"](*batch(70))
    player.load_weights(weights)
    assert {name: found[name].item() for name in player.scalars()} == player.scalars()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.bool,
                                   torch.uint16, torch.float8_e5m2, torch.complex64], ids=str)
def test_a_dtype_goes_through_a_state_dict(tmp_path, dtype):
    """As a buffer of a module, in the words of PyTorch on both sides."""
    module = torch.nn.Module()
    module.register_buffer("offset", torch.arange(8).to(torch.uint8).to(dtype))
    module.register_parameter("scale", torch.nn.Parameter(torch.ones(4)))

    def scaled(x):
        return x * module.scale

    step = steptape.wrap(scaled, model=module, name="scaled")
    for _ in range(6):
        with torch.no_grad():
            step(torch.ones(4))
    step.save(tmp_path / "run.tape")
    player = steptape.load(tmp_path / "run.tape")
    weights = tmp_path / "weights.pt"
    player.save_weights(weights, of="model")
    found = torch.load(weights, weights_only=True)
    assert bits(found["scale"]) == bits(module.scale.detach())
    assert found["offset"].dtype == dtype
    assert bits(found["offset"]) == bits(module.offset)


def held(tmp_path, **tensors):
    """A player of a step over a module that holds these tensors as buffers."""
    module = torch.nn.Module()
    for name, tensor in tensors.items():
        module.register_buffer(name, tensor)
    step = steptape.wrap(lambda x: x + 1, model=module, name="next")
    for _ in range(6):
        step(torch.ones(4))
    step.save(tmp_path / "run.tape")
    return steptape.load(tmp_path / "run.tape")


def test_conjugate_and_negative_views_are_read_as_what_they_show(tmp_path):
    weights = tmp_path / "weights.pt"
    player = held(tmp_path, z=torch.zeros(3, dtype=torch.complex64), imag=torch.zeros(3))
    z = torch.tensor([1 + 2j, 3 - 4j, -5j])
    views = {"z": z.conj(), "imag": z.clone().conj().imag}
    assert views["z"].is_conj() and views["imag"].is_neg()
    torch.save(views, weights)
    player.load_weights(weights, of="model")
    for name, view in views.items():
        assert torch.equal(player.tensor(f"model.{name}"), view), name


def rewritten(path, compression=zipfile.ZIP_STORED, **records):
    """The archive anew, with other bytes in records of these names."""
    with zipfile.ZipFile(path) as archive:
        bytes_of = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in bytes_of.items():
            archive.writestr(name, records.get(name.split("/")[-1], data))


def test_archives_that_others_wrote(tmp_path):
    weights = tmp_path / "weights.pt"
    player = held(tmp_path, x=torch.zeros(1000))
    torch.save({"x": torch.ones(1000)}, weights)
    rewritten(weights, byteorder=b"big")
    with pytest.raises(steptape.Unsupported, match="another order"):
        player.load_weights(weights, of="model")
    rewritten(weights, zipfile.ZIP_DEFLATED, byteorder=b"little")
    with pytest.raises(steptape.Unsupported, match="compressed"):
        player.load_weights(weights, of="model")
    assert not player.tensor("model.x").any()
    rewritten(weights)
    player.load_weights(weights, of="model")
    assert player.tensor("model.x").all()


def test_tied_weights_must_agree(tmp_path):
    weights = tmp_path / "weights.pt"
    shared = torch.zeros(4)
    player = held(tmp_path, first=shared, second=shared)
    torch.save({"first": torch.ones(4), "second": torch.full((4,), 2.0)}, weights)
    with pytest.raises(steptape.InvalidArgument, match="second"):
        player.load_weights(weights, of="model")
    assert not player.tensor("model.first").any()
    torch.save({"first": torch.ones(4), "second": torch.ones(4)}, weights)
    player.load_weights(weights, of="model")
    assert player.tensor("model.second").all()


def test_an_expanded_buffer_takes_what_it_can_hold(tmp_path):
    weights = tmp_path / "weights.pt"
    player = held(tmp_path, x=torch.zeros(1).expand(4))
    torch.save({"x": torch.arange(4.0)}, weights)
    with pytest.raises(steptape.InvalidArgument, match="x"):
        player.load_weights(weights, of="model")
    torch.save({"x": torch.full((4,), 3.0)}, weights)
    player.load_weights(weights, of="model")
    assert torch.equal(player.tensor("model.x"), torch.full((4,), 3.0))


def test_what_is_no_state_dict_is_refused(tmp_path):
    _, _, _, path = replaying_program(tmp_path)
    player = steptape.load(path)
    weights = tmp_path / "weights.pt"
    torch.save(torch.nn.Linear(2, 2), weights)
    with pytest.raises(steptape.Unsupported, match="more than a dict"):
        player.load_weights(weights)
    torch.save([torch.ones(2)], weights)
    with pytest.raises(steptape.Unsupported, match="not a dict"):
        player.load_weights(weights)
    torch.save(collections.OrderedDict(x=torch.ones(2)), weights, _use_new_zipfile_serialization=False)
    with pytest.raises(steptape.DataLoss):
        player.load_weights(weights)
    weights.write_bytes(b"PK\x03\x04" + bytes(1000))
    with pytest.raises(steptape.DataLoss, match="damaged archive"):
        player.load_weights(weights)
    with pytest.raises(steptape.IoError):
        player.load_weights(tmp_path / "missing.pt")


def test_a_player_explains_itself(tmp_path):
    _, _, _, path = replaying_program(tmp_path)
    player = steptape.load(path)
    player["train"](*batch(70))
    assert 'step "train": 1 calls ran' in player.explain()


def test_memory_of_a_player_that_its_user_moves_is_followed(tmp_path):
    """As sending a tensor to another process does."""
    _, _, _, path = replaying_program(tmp_path)
    player, other = steptape.load(path), steptape.load(path)
    names = [spec["path"] for spec in player.state()]
    for i in range(6):
        if i > 0:
            player.tensor(names[i % len(names)]).share_memory_()
        assert bits(player["train"](*batch(70 + i))) == bits(other["train"](*batch(70 + i)))
        for name in names:
            assert bits(player.tensor(name)) == bits(other.tensor(name)), name
