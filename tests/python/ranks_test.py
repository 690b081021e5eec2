"""Steps that exchange tensors with other processes: two to four ranks, Gloo on this machine. On each rank a wrapped
step runs beside the same step as it is; both must leave the same bits, whichever rank records, replays or is audited."""
import faulthandler
import functools
import gc
import os
import random
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import steptape
from twins import codes_of

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="this torch has no Gloo")


class Training:
    def __init__(self, body):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        self.optimizer = torch.optim.Adam(self.model.parameters(), 0.01)
        self.body = body
        self.scale = 1.0

    def step(self, x):
        return self.body(self, x)

    def backward(self, x):
        self.optimizer.zero_grad()
        loss = self.model(x).square().mean() * self.scale
        loss.backward()
        return loss.detach()

    def state(self):
        tensors = [tensor for p in self.model.parameters() for tensor in (p.detach(), p.grad)]
        optimizer = getattr(self.optimizer, "optim", self.optimizer)  # of ZeroRedundancyOptimizer, that of this rank's part
        tensors += [value for p in self.model.parameters() for value in optimizer.state.get(p, {}).values()]
        return [tensor.clone() for tensor in tensors]


def sum_each(training, x):
    loss = training.backward(x)
    for p in training.model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    training.optimizer.step()
    return loss


def sum_at_once(training, x):
    loss = training.backward(x)
    works = [dist.all_reduce(p.grad, async_op=True) for p in training.model.parameters()]
    for work in works:
        work.wait()
    training.optimizer.step()
    return loss


def sum_coalesced(training, x):
    loss = training.backward(x)
    dist.all_reduce_coalesced([p.grad for p in training.model.parameters()])
    training.optimizer.step()
    return loss


def sum_of_a_part(training, x):
    loss = training.backward(x)
    flat = torch.cat([p.grad.reshape(-1) for p in training.model.parameters()])
    flat = torch.cat([flat, flat.new_zeros(-flat.numel() % dist.get_world_size())])
    part = torch.empty(flat.numel() // dist.get_world_size())
    dist.reduce_scatter_tensor(part, flat)
    dist.all_gather_into_tensor(flat, part)
    first = 0
    for p in training.model.parameters():
        p.grad.copy_(flat[first:first + p.numel()].view_as(p))
        first += p.numel()
    training.optimizer.step()
    return loss


def gather_outputs(training, x):
    training.optimizer.zero_grad()
    own = training.model(x)
    all_of_them = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of_them, own.detach())
    all_of_them[dist.get_rank()] = own
    loss = torch.cat(all_of_them).square().mean() * training.scale
    loss.backward()
    training.optimizer.step()
    return loss.detach()


def broadcast_parameters(training, x):
    loss = training.backward(x)
    noise = torch.arange(3.0) if dist.get_rank() == 0 else torch.empty(3)
    dist.broadcast(noise, 0)
    training.optimizer.step()
    for p in training.model.parameters():
        dist.broadcast(p.data, 0)
    return loss + noise.sum()


def largest_loss(training, x):
    loss = training.backward(x)
    training.optimizer.step()
    dist.all_reduce(loss, op=dist.ReduceOp.MAX)
    dist.barrier()
    return loss


def skip_together(training, x):
    """All ranks look at what they have agreed on, after a collective."""
    loss = training.backward(x)
    total = loss.clone()
    dist.all_reduce(total)
    if total.item() < 100:
        training.optimizer.step()
    return loss


def by_parts(parameters):
    from torch.distributed.optim import ZeroRedundancyOptimizer  # takes seconds to import

    return ZeroRedundancyOptimizer(parameters, torch.optim.Adam, lr=0.01)


class DataParallel(Training):
    """`twice`: a first backward whose gradients are not exchanged."""

    def __init__(self, twice=False, hook=None, optimizer=None, **options):
        super().__init__(None)
        self.module = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
        self.model = nn.parallel.DistributedDataParallel(self.module, **options)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 0.01) if optimizer is None else \
            optimizer(self.model.parameters())
        self.twice = twice
        if hook is not None:
            self.model.register_comm_hook(None, hook)

    def step(self, x):
        self.optimizer.zero_grad()
        if self.twice:
            with self.model.no_sync():
                self.model(x + 1).square().mean().backward()
        loss = self.model(x).square().mean() * self.scale
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def state(self):
        return [*super().state(), *(buffer.clone() for buffer in self.module.buffers())]


BODIES = [sum_each, sum_at_once, sum_coalesced, sum_of_a_part, gather_outputs, broadcast_parameters, largest_loss,
          skip_together]


def run_rank(rank, world, folder, limit_s, test, arguments):
    faulthandler.dump_traceback_later(limit_s, exit=True)  # of all threads, where it hangs
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=world)
    test(rank, *arguments)
    dist.barrier()
    # Gloo's threads may abort a process that ends in the ordinary way, with Steptape or without
    gc.collect()  # steps that are gone have written their traces
    os._exit(0)


def run_ranks(folder, world, test, *arguments, limit_s=120):
    mp.spawn(run_rank, args=(world, str(folder), limit_s, test, arguments), nprocs=world)


def assert_same(call, plain, taped, expected, found):
    for a, b in zip([expected, *plain.state()], [found, *taped.state()], strict=True):
        assert torch.equal(a.view(torch.uint8) if a.dim() else a, b.view(torch.uint8) if b.dim() else b), call


def replay(rank, make, calls, least, code=None):
    plain, taped = make(), make()
    step = steptape.wrap(taped.step, verify={"first": True, "rate": 0.0})
    for call in range(calls):
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(1000 * rank + call))
        assert_same(call, plain, taped, plain.step(x), step(x))
    if least:
        assert step.stats["replayed"] >= least, step.explain()
    else:
        assert step.stats["replayed"] == 0, step.explain()
        assert code is None or code in codes_of(step), step.explain()


def replay_each(rank, makes, *arguments):
    """One after the other, since a process takes seconds to start."""
    for name, make in makes.items():
        try:
            replay(rank, make, *arguments)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def test_collectives_are_replayed(tmp_path):
    run_ranks(tmp_path, 2, replay_each, {body.__name__: functools.partial(Training, body) for body in BODIES}, 16, 8)


def data_parallel(*variants):
    return {str(options): functools.partial(DataParallel, **options) for options in variants}


def test_data_parallel_models_are_replayed(tmp_path):
    makes = data_parallel({}, {"static_graph": True}, {"broadcast_buffers": False}, {"twice": True}, {"bucket_cap_mb": 0.0001},
                          {"gradient_as_bucket_view": True}, {"find_unused_parameters": True},
                          {"optimizer": by_parts}, {"optimizer": by_parts, "gradient_as_bucket_view": True})
    run_ranks(tmp_path, 2, replay_each, makes, 16, 9)


def test_gradients_that_are_compressed_are_refused(tmp_path):
    # its thread may be early, so that the trial tells
    run_ranks(tmp_path, 2, replay, functools.partial(DataParallel, hook=default_hooks.fp16_compress_hook), 8, 0)


class TwoHeads(nn.Module):
    """Of which each call uses one, and of another layer nothing."""

    def __init__(self):
        super().__init__()
        self.body, self.never = nn.Linear(4, 8), nn.Linear(2, 2)
        self.heads = nn.ModuleList([nn.Linear(8, 3), nn.Linear(8, 3)])

    def forward(self, x, head):
        return self.heads[head](torch.tanh(self.body(x)))


def use_one_head(rank, calls):
    """Each rank draws which, for a while: whether the other ranks used a parameter is a question to them."""
    (plain, eager), (taped, body) = make_two_heads(), make_two_heads()
    step = steptape.wrap(body, verify={"first": True, "rate": 0.1 * rank})
    draw = random.Random(rank)
    for call in range(calls):
        if call % 8 == 0:
            head = draw.choice([0, 1])
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(1000 * rank + call))
        assert torch.equal(eager(x, head), step(x, head)), call
        for p, q in zip(plain.parameters(), taped.parameters()):
            assert torch.equal(p, q) and (p.grad is None) == (q.grad is None), call
            assert p.grad is None or torch.equal(p.grad, q.grad), call
    assert step.stats["replayed"] > calls // 8, step.explain()


def make_two_heads():
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(TwoHeads(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def step(x, head):
        optimizer.zero_grad()
        loss = model(x, head).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, step


def test_parameters_that_some_ranks_use(tmp_path):
    run_ranks(tmp_path, 2, use_one_head, 80)


def mix(rank, make, calls):
    """What each rank does is drawn by itself: whether a plan is audited, and whether it fits."""
    plain, taped = make(), make()
    step = steptape.wrap(taped.step, verify={"first": True, "rate": 0.1 * rank})
    draw = random.Random(rank)
    for call in range(calls):
        plain.scale = taped.scale = draw.choice([1.0, 1.0, 1.0, 0.5 + rank])
        rows = draw.choice([5, 5, 5, 5, 6 + rank])
        x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(1000 * rank + call))
        assert_same(call, plain, taped, plain.step(x), step(x))
    assert step.stats["replayed"] > calls // 4, step.explain()


@pytest.mark.parametrize("world, make", [(2, functools.partial(Training, sum_each)), (2, DataParallel),
                                         (4, functools.partial(Training, sum_each))],
                         ids=["two", "two with DistributedDataParallel", "four"])
def test_ranks_mix_as_they_like(tmp_path, world, make):
    run_ranks(tmp_path, world, mix, make, 2000 // world, limit_s=240)


def fail_alone(rank, calls):
    plain, taped = Training(sum_each), Training(sum_each)
    step = steptape.wrap(taped.step, verify={"first": True, "rate": 0.0})
    for call in range(calls):
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(1000 * rank + call))
        assert_same(call, plain, taped, plain.step(x), step(x))
    assert step.stats["replayed"] > 0, step.explain()
    dist.barrier()
    if rank == 1:
        os._exit(0)
    before = taped.state()
    with pytest.raises(RuntimeError, match="[Cc]onnection|peer|gloo"):
        step(x)
    assert all(map(torch.equal, before[0::2][:4], taped.state()[0::2][:4]))  # no parameter was stepped
    os._exit(0)


def test_a_rank_that_dies_fails_the_others_as_in_eager(tmp_path):
    run_ranks(tmp_path, 2, fail_alone, 10)


def other_group(rank):
    plain, taped = Training(sum_each), Training(sum_each)
    step = steptape.wrap(taped.step, verify={"first": True, "rate": 0.0})
    x = torch.ones(5, 4)
    for call in range(8):
        assert_same(call, plain, taped, plain.step(x), step(x))
    replayed = step.stats["replayed"]
    dist.barrier()
    dist.destroy_process_group()
    with pytest.raises(ValueError, match="[Dd]efault process group"):
        step(x)
    assert step.stats["replayed"] == replayed
    os._exit(0)


def test_a_group_that_is_destroyed_raises_what_eager_raises(tmp_path):
    run_ranks(tmp_path, 2, other_group)


def use_p2p(rank):
    def body(x):
        received = torch.empty(4)
        dist.send(x, 1) if rank == 0 else dist.recv(received, 0)
        return x * 2 + (received if rank else 0)

    step = steptape.wrap(body)
    for call in range(6):
        x = torch.arange(4.0) + call
        assert torch.equal(step(x), x * 2 + (x if rank else 0))
    assert step.stats["replayed"] == 0
    assert ("c10d::send" if rank == 0 else "c10d::recv_") in step.explain()
    assert "by a collective" in step.explain()


def test_messages_from_one_rank_to_another_are_refused_by_name(tmp_path):
    run_ranks(tmp_path, 2, use_p2p)


def share_out(rank):
    from torch.distributed.fsdp import fully_shard

    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
        fully_shard(model)
        optimizer = torch.optim.Adam(model.parameters(), 0.01)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return model, step

    (plain, eager), (taped, body) = make(), make()
    step = steptape.wrap(body)
    for call in range(6):
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(1000 * rank + call))
        assert torch.equal(eager(x), step(x)), call
        for p, q in zip(plain.parameters(), taped.parameters()):
            assert torch.equal(p.to_local(), q.to_local()), call
    assert step.stats["replayed"] == 0 and "fully_shard" in step.explain(), step.explain()


def test_parameters_that_are_shared_out_are_refused_by_name(tmp_path):
    run_ranks(tmp_path, 2, share_out)


def functional(rank):
    from torch.distributed._functional_collectives import all_reduce

    def body(x):
        return all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    step = steptape.wrap(body)
    for call in range(6):
        x = torch.arange(4.0) + call + rank
        assert torch.equal(step(x), (2 * (torch.arange(4.0) + call) + 1) * 2 + 1)
    assert step.stats["replayed"] == 0 and "dist.all_reduce" in step.explain(), step.explain()


def test_functional_collectives_are_refused_by_name(tmp_path):
    run_ranks(tmp_path, 2, functional)


def meet_unevenly(rank):
    from torch.distributed.algorithms.join import Join

    plain, taped = DataParallel(), DataParallel()
    step = steptape.wrap(taped.step, verify={"first": True, "rate": 0.1})
    for call in range(14):  # a plan is there
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(1000 * rank + call))
        assert_same(call, plain, taped, plain.step(x), step(x))
    losses = []
    for training, run in ((plain, plain.step), (taped, step)):
        with Join([training.model]):
            losses.append([run(torch.randn(5, 4, generator=torch.Generator().manual_seed(100 * rank + call)))
                           for call in range(8 + 5 * rank)])
    assert all(map(torch.equal, *losses))
    for call in range(20, 34):
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(1000 * rank + call))
        assert_same(call, plain, taped, plain.step(x), step(x))
    assert step.stats["replayed"] > 0, step.explain()


def test_ranks_that_have_other_numbers_of_batches(tmp_path):
    run_ranks(tmp_path, 2, meet_unevenly)


FORKED = """
import sys
sys.path.insert(0, sys.argv[1])
import functools, torch, torch.multiprocessing as mp
import ranks_test

torch.ones(3).sum()
arguments = (2, sys.argv[2], 60, ranks_test.replay, (functools.partial(ranks_test.Training, ranks_test.sum_each), 16, 8))
mp.start_processes(ranks_test.run_rank, args=arguments, nprocs=2, start_method="fork")
"""


def test_ranks_that_are_forked(tmp_path):
    here = os.path.dirname(os.path.abspath(__file__))
    subprocess.run([sys.executable, "-c", FORKED, here, str(tmp_path)], check=True, timeout=100)
