"""Hugging Face's Trainer with SteptapeTrainerMixin beside Trainer without: parameters, optimizers, logs, checkpoints."""
import copy
import functools
import inspect
import logging
import warnings

import pytest
import torch

import steptape
from twins import bits

pytest.importorskip("accelerate")
transformers = pytest.importorskip("transformers")
import steptape.transformers  # noqa: E402

warnings.filterwarnings("ignore", module="transformers|accelerate|torch.utils.checkpoint")
transformers.utils.logging.set_verbosity_error()
logging.getLogger("accelerate").setLevel(logging.ERROR)
ROWS = 37


class Taped(steptape.transformers.SteptapeTrainerMixin, transformers.Trainer):
    steptape_options = {"verify": {"first": True, "rate": 0.0}}


class OwnLoss(transformers.Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        loss = outputs.loss + 0.01 * outputs.logits.square().mean()
        return (loss, outputs) if return_outputs else loss


class TapedOwnLoss(steptape.transformers.SteptapeTrainerMixin, OwnLoss):
    steptape_options = Taped.steptape_options


def writer():
    config = transformers.GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    return transformers.GPT2LMHeadModel(config), lambda ids, draw: ids


def reader():
    config = transformers.BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
                                     max_position_embeddings=16, num_labels=3)
    return transformers.BertForSequenceClassification(config), lambda ids, draw: torch.randint(0, 3, (), generator=draw)


def train(kind, folder, make=writer, resume=None, callbacks=(), **options):
    torch.manual_seed(0)
    model, labels_of = make()
    draw = torch.Generator().manual_seed(3)
    rows = [{"input_ids": ids, "labels": labels_of(ids, draw)} for ids in (torch.randint(0, 50, (12,), generator=draw) for _ in range(ROWS))]
    arguments = transformers.TrainingArguments(str(folder), **{
        "per_device_train_batch_size": 4, "num_train_epochs": 6, "report_to": [], "logging_steps": 1, "use_cpu": True,
        "disable_tqdm": True, "save_strategy": "no", **options})
    trainer = kind(model, arguments, train_dataset=rows, callbacks=list(callbacks))
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def left(trainer):
    logs = [{name: value for name, value in line.items() if "runtime" not in name and "per_second" not in name}
            for line in trainer.state.log_history]
    return bits([dict(trainer.model.state_dict()), trainer.optimizer.state_dict(), trainer.lr_scheduler.state_dict(), logs,
                 trainer.state.global_step])


class ClipsLater(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step > 20:
            args.max_grad_norm = 0.05 * (state.global_step // 10)


CASES = {
    "writer": (writer, {}),
    "reader": (reader, {"lr_scheduler_type": "cosine", "warmup_steps": 5, "weight_decay": 0.01}),
    "accumulated, and a last short group": (writer, {"gradient_accumulation_steps": 4}),
    "not clipped": (writer, {"max_grad_norm": 0.0}),
    "clipped later": (writer, {"max_grad_norm": 0.0, "callbacks": [ClipsLater()]}),
    "bfloat16": (reader, {"bf16": True}),
    "smoothed": (writer, {"label_smoothing_factor": 0.1}),
    "checkpointed": (writer, {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}}),
}


@pytest.mark.parametrize("case", CASES)
def test_training_leaves_what_trainer_leaves(tmp_path, case):
    make, options = CASES[case]
    plain, taped = (train(kind, tmp_path, make, **options) for kind in (transformers.Trainer, Taped))
    assert left(plain) == left(taped)
    assert ("step" in vars(taped.optimizer)) == ("step" in vars(plain.optimizer))
    for name, stats in taped.steptape_stats.items():
        free = stats["steps"] - stats["recorded"] - stats["trials"]
        assert stats["replayed"] >= 0.9 * free > 0, (name, taped.steptape_explain())


def test_a_loss_of_the_program_s_own(tmp_path):
    plain, taped = (train(kind, tmp_path) for kind in (OwnLoss, TapedOwnLoss))
    assert left(plain) == left(taped)
    assert taped.steptape_stats["update"]["replayed"] > 40, taped.steptape_explain()


class OwnInputs(transformers.Trainer):
    """A batch is made anew, by the model as it trains, and counted."""
    count = 0

    def _prepare_inputs(self, inputs):
        if self.model.training:
            self.count += 1
            inputs = {**inputs, "attention_mask": (torch.rand(inputs["input_ids"].shape) < 0.9).long()}
        return super()._prepare_inputs(inputs)


class TapedOwnInputs(steptape.transformers.SteptapeTrainerMixin, OwnInputs):
    steptape_options = Taped.steptape_options


def test_inputs_are_prepared_once(tmp_path):
    plain, taped = (train(kind, tmp_path) for kind in (OwnInputs, TapedOwnInputs))
    assert left(plain) == left(taped) and plain.count == taped.count == 60 and "_prepare_inputs" not in vars(taped)
    assert taped.steptape_stats["update"]["replayed"] > 40, taped.steptape_explain()


class Exchanges(transformers.TrainerCallback):
    """The optimizer, in the middle of training."""

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        if state.global_step == 15:
            self.trainer.optimizer = self.trainer.accelerator.prepare_optimizer(torch.optim.SGD(model.parameters(), 0.1))


def test_an_optimizer_that_is_exchanged(tmp_path):
    def run(kind):
        callback = Exchanges()

        class Of(kind):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                callback.trainer = self
        return train(Of, tmp_path, callbacks=[callback])
    plain, taped = run(transformers.Trainer), run(Taped)
    assert left(plain) == left(taped)
    assert taped.steptape_stats["update"]["replayed"] > 20, taped.steptape_explain()


class Around:
    """What a class does around the methods of its bases, after backward and before the optimizer's step."""

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(0.5)
        return loss

    def _clip_grad_norm(self, model):
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad.clamp_(-0.1, 0.1)
        return super()._clip_grad_norm(model)

    def _get_grad_norm(self, *args, **kwargs):
        return 2 * super()._get_grad_norm(*args, **kwargs)


def test_methods_of_the_class_that_has_the_mixin_among_its_bases(tmp_path):
    class Plain(Around, transformers.Trainer):
        pass

    class AroundTaped(Around, Taped):
        pass

    class BelowTaped(steptape.transformers.SteptapeTrainerMixin, Plain):
        steptape_options = Taped.steptape_options
    expected = left(train(Plain, tmp_path))
    assert expected != left(train(transformers.Trainer, tmp_path))
    for kind in (AroundTaped, BelowTaped):
        taped = train(kind, tmp_path)
        assert left(taped) == expected and "training_step" not in vars(taped)
        assert taped.steptape_stats["update"]["replayed"] > 40, taped.steptape_explain()


class Within(transformers.TrainerCallback):
    """Has the trainer, and does something with it at one step, or after each."""

    def __init__(self, do):
        self.do = do

    def on_step_end(self, args, state, control, **kwargs):
        self.do(self.trainer, state.global_step)


def looks_at_another_batch(trainer, step):
    batch = {"input_ids": torch.full((2, 12), step % 50), "labels": torch.full((2, 12), step % 50)}
    trainer.training_step(trainer.model, batch)
    trainer.seen = [*getattr(trainer, "seen", []), sum(p.grad.sum().item() for p in trainer.model.parameters() if p.grad is not None)]
    trainer.model.zero_grad()


def clips_in_another_way(trainer, step):
    if step == 15:
        def clip(model):
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(0.1)
            return torch.tensor(1.5)
        trainer._clip_grad_norm = clip


class InnerSteps(transformers.Trainer):
    """Two updates a batch, the first of its own."""

    def training_step(self, model, inputs, *args):
        super().training_step(model, inputs, *args)
        self._clip_grad_norm(model)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return super().training_step(model, inputs, *args)


class AnotherBatch(transformers.Trainer):
    """A loss of two batches, of which it prepares the second itself."""

    def _prepare_inputs(self, inputs):
        inputs = super()._prepare_inputs(inputs)
        return {**inputs, "input_ids": (inputs["input_ids"] + 1) % 50}

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        other = self._prepare_inputs({"input_ids": torch.arange(24).view(2, 12), "labels": torch.arange(24).view(2, 12)})
        return model(**inputs).loss + model(**other).loss


@pytest.mark.parametrize("kind, do, replays", [
    (InnerSteps, None, True), (AnotherBatch, None, True), (transformers.Trainer, looks_at_another_batch, True),
    (transformers.Trainer, clips_in_another_way, True)])
def test_what_others_and_the_step_itself_call_is_what_it_was(tmp_path, kind, do, replays):
    def run(*kinds):
        callbacks = [] if do is None else [Within(do)]

        class Of(*kinds):
            steptape_options = Taped.steptape_options

            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                for callback in callbacks:
                    callback.trainer = self
        return train(Of, tmp_path, callbacks=callbacks)
    plain, taped = run(kind), run(steptape.transformers.SteptapeTrainerMixin, kind)
    assert left(plain) == left(taped) and getattr(plain, "seen", None) == getattr(taped, "seen", None)
    assert (taped.steptape_stats["update"]["replayed"] > 20) == replays, taped.steptape_explain()


def wrapped(function, before=lambda: None):
    """As timers and profilers wrap a method."""
    @functools.wraps(function)
    def called(*args, **kwargs):
        before()
        return function(*args, **kwargs)
    return called


REPLACED = {
    "training_step": lambda trainer: setattr(trainer, "training_step", wrapped(trainer.training_step)),
    "a partial": lambda trainer: setattr(trainer, "training_step", functools.partial(trainer.training_step)),
    "twice": lambda trainer: [REPLACED["training_step"](trainer) for _ in range(2)],
    "gradients": lambda trainer: setattr(trainer, "_clip_grad_norm", wrapped(
        trainer._clip_grad_norm, lambda: [p.grad.mul_(0.5) for p in trainer.model.parameters()])),
    "clips": lambda trainer: setattr(trainer, "_clip_grad_norm", wrapped(trainer._clip_grad_norm)),
    "norms": lambda trainer: setattr(trainer, "_get_grad_norm", wrapped(trainer._get_grad_norm)),
    "optimizer": lambda trainer: setattr(trainer.optimizer, "step", wrapped(trainer.optimizer.step)),
    "deleted": lambda trainer: vars(trainer).pop("training_step", None),
    "deleted, the optimizer's": lambda trainer: vars(trainer.optimizer).pop("step", None),
}


@pytest.mark.parametrize("when, accumulate", [("begin", 1), (15, 1), (15, 2)])
@pytest.mark.parametrize("what", REPLACED)
def test_a_method_that_a_callback_wraps(tmp_path, what, when, accumulate):
    """While training is under way: what it wraps and calls is what stood there."""
    class Wraps(transformers.TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            if when == "begin":
                REPLACED[what](self.trainer)

        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == when:
                REPLACED[what](self.trainer)

    def run(*kinds):
        callback = Wraps()

        class Of(*kinds):
            steptape_options = Taped.steptape_options

            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                callback.trainer = self
        return train(Of, tmp_path, callbacks=[callback], gradient_accumulation_steps=accumulate, num_train_epochs=4)
    plain, taped = run(transformers.Trainer), run(steptape.transformers.SteptapeTrainerMixin, transformers.Trainer)
    assert left(plain) == left(taped)
    assert taped.steptape_stats["update"]["replayed"] > 8, taped.steptape_explain()


class ExchangesItself(transformers.Trainer):
    """Another optimizer from some update on, or in turn."""
    in_turn = False

    def training_step(self, model, inputs, *args):
        if not hasattr(self, "both"):
            self.both = [self.optimizer, self.accelerator.prepare_optimizer(torch.optim.SGD(model.parameters(), 0.05))]
        step = self.state.global_step
        self.optimizer = self.both[step % 2 if self.in_turn else step > 20]
        return super().training_step(model, inputs, *args)


@pytest.mark.parametrize("in_turn", [False, True])
def test_a_training_step_that_exchanges_the_optimizer(tmp_path, in_turn):
    def run(*kinds):
        return train(type("Of", kinds, {"in_turn": in_turn, "steptape_options": Taped.steptape_options}), tmp_path)
    plain, taped = run(ExchangesItself), run(steptape.transformers.SteptapeTrainerMixin, ExchangesItself)
    assert left(plain) == left(taped)
    assert [bits(each.state_dict()) for each in plain.both] == [bits(each.state_dict()) for each in taped.both]
    assert (taped.steptape_stats["update"]["replayed"] > 10) != in_turn, taped.steptape_explain()


def test_a_copy_that_is_made_while_it_trains_is_a_trainer_of_its_own(tmp_path):
    copies = []

    def copies_it(trainer, step):
        if step == 15:
            copies.append((copy.copy(trainer), trainer))
            copies[-1][0].args = copy.copy(trainer.args)
            copies[-1][0].args.max_grad_norm = 0.01
    run = [train(type("Of", (kind,), {"__init__": lambda self, *args, of=kind, callback=callback, **kwargs: (
        of.__init__(self, *args, **kwargs), setattr(callback, "trainer", self))[0]}), tmp_path, callbacks=[callback])
        for kind in (transformers.Trainer, Taped) for callback in [Within(copies_it)]]
    assert left(run[0]) == left(run[1]) and "_taped" not in vars(copies[1][0])
    norms = []
    for made, trainer in copies:
        assert not {"training_step", "_clip_grad_norm", "_get_grad_norm"} & vars(made).keys()
        made.model.zero_grad()
        made.training_step(made.model, {"input_ids": torch.arange(24).view(2, 12), "labels": torch.arange(24).view(2, 12)})
        made._clip_grad_norm(made.model)
        norms.append(sum(p.grad.square().sum() for p in made.model.parameters()).sqrt().item())
    assert norms[0] == norms[1] and norms[0] < 0.02


def test_stand_ins_look_like_the_methods(tmp_path):
    seen = []

    def looks(trainer, step):
        for method in (trainer.training_step, trainer._clip_grad_norm, trainer.optimizer.step):
            seen.append((method.__name__, str(inspect.signature(method)), type(getattr(method, "__self__", None)).__mro__[-2].__name__))
    for kind in (transformers.Trainer, Taped):
        callback = Within(looks)
        kind = type("Of", (kind,), {"__init__": lambda self, *args, of=kind, **kwargs: (
            of.__init__(self, *args, **kwargs), setattr(callback, "trainer", self))[0]})
        train(kind, tmp_path, callbacks=[callback], num_train_epochs=1)
    assert seen[:len(seen) // 2] == seen[len(seen) // 2:]


class PreparesNothing(transformers.Trainer):
    """An augmentation that its own training step leaves out."""

    def _prepare_inputs(self, inputs):
        inputs = super()._prepare_inputs(inputs)
        return {**inputs, "input_ids": (inputs["input_ids"] + 1) % 50}

    def training_step(self, model, inputs, num_items_in_batch=None):
        model.train()
        loss = self.compute_loss(model, inputs)
        self.accelerator.backward(loss)
        return loss.detach()


class PreparesAnotherFirst(PreparesNothing):
    def training_step(self, model, inputs, num_items_in_batch=None):
        self.other = self._prepare_inputs({"input_ids": torch.arange(24).view(2, 12), "labels": torch.arange(24).view(2, 12)})
        return transformers.Trainer.training_step(self, model, inputs, num_items_in_batch)


class DrawsFirst(PreparesNothing):
    def _prepare_inputs(self, inputs):
        inputs = super()._prepare_inputs(inputs)
        return {**inputs, "input_ids": (inputs["input_ids"] + torch.randint(0, 3, inputs["input_ids"].shape)) % 50}

    def training_step(self, model, inputs, num_items_in_batch=None):
        self.drawn = torch.rand(1)
        return transformers.Trainer.training_step(self, model, inputs, num_items_in_batch)


@pytest.mark.parametrize("kind", [PreparesNothing, PreparesAnotherFirst, DrawsFirst])
def test_a_training_step_prepares_its_batch_as_it_likes(tmp_path, kind):
    plain = train(kind, tmp_path)
    taped = train(type("Of", (steptape.transformers.SteptapeTrainerMixin, kind), {"steptape_options": Taped.steptape_options}), tmp_path)
    assert left(plain) == left(taped)
    assert taped.steptape_stats["update"]["replayed"] > 40, taped.steptape_explain()


def test_a_callback_that_comes_later_is_refused_too(tmp_path):
    def adds(trainer, step):
        if step == 15:
            trainer.add_callback(Looks())
    callback = Within(adds)

    class Of(Taped):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            callback.trainer = self
    with pytest.raises(steptape.InvalidArgument, match="Looks.on_pre_optimizer_step"):
        train(Of, tmp_path, callbacks=[callback])
    assert callback.trainer.state.global_step == 15 and "training_step" not in vars(callback.trainer)


class Fails(Taped):
    def compute_loss(self, *args, **kwargs):
        if self.state.global_step == 15:
            raise ValueError("on purpose")
        return super().compute_loss(*args, **kwargs)


def test_an_exception_of_the_step_leaves_the_trainer_as_it_was(tmp_path):
    trainers = []

    class Of(Fails):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            trainers.append(self)
    with pytest.raises(ValueError, match="on purpose"):
        train(Of, tmp_path)
    assert not {"training_step", "_clip_grad_norm", "_get_grad_norm", "_prepare_inputs"} & vars(trainers[0]).keys()


class ByAttribute(transformers.Trainer):
    """Its batches are those of tokenizers, which have attributes; a loss may take from one, or keep it."""
    takes = keeps = False

    def _prepare_inputs(self, inputs):
        inputs = super()._prepare_inputs(inputs)
        if self.keeps:
            self.kept = inputs
        return inputs

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        ids = inputs.input_ids
        labels = inputs.pop("labels") if self.takes else inputs["labels"]
        if self.keeps:
            inputs["seen"] = inputs.get("seen", 0) + 1
            assert self.kept is inputs
        return model(input_ids=ids, labels=labels).loss


@pytest.mark.parametrize("does", ["", "takes", "keeps"])
def test_a_batch_stays_what_it_is(tmp_path, does):
    def collate(rows):
        return transformers.BatchEncoding({name: torch.stack([row[name] for row in rows]) for name in rows[0]})

    def run(*kinds):
        kind = type("Of", kinds, {"steptape_options": Taped.steptape_options, does or "_": True})

        class Collates(kind):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, data_collator=collate, **kwargs)
        return train(Collates, tmp_path)
    plain, taped = run(ByAttribute), run(steptape.transformers.SteptapeTrainerMixin, ByAttribute)
    assert left(plain) == left(taped)
    stats = taped.steptape_stats["update"]
    assert stats["replayed"] > 40 and not stats["refusals"], taped.steptape_explain()


class RunsOut(transformers.TrainerCallback):
    """Of memory, once."""

    def __init__(self):
        self.is_over = False

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 15 and not self.is_over:
            self.is_over = True
            raise RuntimeError("CUDA out of memory.")


def test_training_begins_anew_with_smaller_batches(tmp_path):
    plain, taped = (train(kind, tmp_path, callbacks=[RunsOut()], auto_find_batch_size=True) for kind in (transformers.Trainer, Taped))
    assert left(plain) == left(taped) and taped._train_batch_size < 4
    assert taped.steptape_stats["update"]["replayed"] > 40, taped.steptape_explain()


def test_training_goes_on_from_a_checkpoint(tmp_path):
    def run(kind, folder):
        train(kind, folder, save_strategy="steps", save_steps=10, num_train_epochs=2)
        saved = [torch.load(folder / "checkpoint-20" / name, weights_only=False) for name in ("optimizer.pt", "scheduler.pt")]
        again = train(kind, folder, resume=str(folder / "checkpoint-10"), save_strategy="no")
        return again, (left(again), bits(saved), (folder / "checkpoint-20/model.safetensors").read_bytes())

    _, expected = run(transformers.Trainer, tmp_path / "plain")
    taped, found = run(Taped, tmp_path / "taped")
    assert expected == found
    assert taped.steptape_stats["update"]["replayed"] > 30, taped.steptape_explain()


class Looks(transformers.TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        pass


def test_a_callback_that_looks_between_backward_and_the_optimizer_is_refused_by_name(tmp_path):
    with pytest.raises(steptape.InvalidArgument, match="Looks.on_pre_optimizer_step"):
        train(Taped, tmp_path, callbacks=[Looks()])
