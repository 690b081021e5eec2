#!/usr/bin/env python3
"""Steps written in Python: eager, under torch.compile and replayed, side by side in one run.

The parts are table, scaling and calls; all three, where none is named.

table    Rows of models (those of bench/workloads.cc) and of updates as PPO, DQN and SAC make them, all with Adam. Rounds in which
         each contestant has its turn, medians of them. Twins of the eager and of the replayed step must agree in every bit.
         torch.compile: the model and the optimizer's step, each compiled, as its documentation advises, with an empty cache;
         "autotune" is mode max-autotune-no-cudagraphs. "s" are seconds until the first call that takes at most 1.5 times what
         calls take from then on. C++ is the same step by steptape_table in the same minute, with its floor. "denormals" is
         the share of them among gradients and state, after the last round.
scaling  An MLP of width 16 with more and more parameters: first call, plan and replay.
calls    What a call costs beside its plan: a step that multiplies one small tensor, and tracks a model of so many layers.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import steptape

NEVER = {"first": True, "rate": 0.0}  # plans are proved once, and not audited while times are taken
WARM_UP = 14
FORMS = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
KINDS = {"eager": None, "compile": "default", "autotune": "max-autotune-no-cudagraphs", "steptape": None}


@dataclasses.dataclass
class Training:
    """models are what may be compiled; step(update, *batch) calls `update` for each optimizer's step."""
    models: list
    optimizers: list
    batch: tuple
    step: callable


def classifier(model, x, y, form):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, **form)

    def step(net, update, x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        update(optimizer)
        return loss
    return Training([model], [optimizer], (x, y), step)


def mlp(layers, width, batch, form):
    parts = [m for _ in range(layers) for m in (nn.Linear(width, width), nn.ReLU())]
    return classifier(nn.Sequential(*parts, nn.Linear(width, 10)), torch.randn(batch, width), torch.arange(batch) % 10, form)


class Gru(nn.Module):
    """A cell that the program unrolls itself."""

    def __init__(self, width=64):
        super().__init__()
        self.cell, self.head = nn.GRUCell(width, width), nn.Linear(width, 10)

    def forward(self, x):
        state = torch.zeros(x.shape[1], x.shape[2])
        for row in x:
            state = self.cell(row, state)
        return self.head(state)


class Lstm(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.lstm, self.head = nn.LSTM(width, width), nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][-1])


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        texts, length, width = x.shape
        q, k, v = (part.reshape(texts, length, 4, width // 4).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(texts, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, width, layers, length=32, words=128):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)
        self.register_buffer("where", torch.arange(length))

    def forward(self, texts):
        x = self.tokens(texts) + self.places(self.where)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).flatten(0, 1)


def conv(form):
    parts, channels = [], 3
    for width in (16, 32, 32):
        parts += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
        channels = width
    return classifier(nn.Sequential(*parts, nn.Flatten(), nn.Linear(512, 10)), torch.randn(16, 3, 32, 32),
                      torch.arange(16) % 10, form)


def tanh_net(inputs, outputs, width=64):
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, outputs))


def relu_net(inputs, outputs, widths):
    sizes = [inputs, *widths]
    parts = [m for a, b in zip(sizes, sizes[1:]) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*parts, nn.Linear(sizes[-1], outputs))


def ppo(form):
    """A minibatch of 64 of a control task: clipped policy loss, clipped value loss, entropy, clipped gradients."""
    class ActorCritic(nn.Module):
        def __init__(self):
            super().__init__()
            self.actor, self.critic = tanh_net(4, 2), tanh_net(4, 1)

        def forward(self, x):
            return self.actor(x), self.critic(x).flatten()

    model = ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), lr=2.5e-4, eps=1e-5, **form)

    def step(net, update, x, action, before, advantage, gain, value_before):
        logits, value = net(x)
        chances = F.log_softmax(logits, dim=-1)
        ratio = (chances.gather(1, action[:, None]).flatten() - before).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy_loss = torch.max(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2)).mean()
        clipped = value_before + (value - value_before).clamp(-0.2, 0.2)
        value_loss = 0.5 * torch.max((value - gain) ** 2, (clipped - gain) ** 2).mean()
        entropy = -(chances * chances.exp()).sum(-1).mean()
        loss = policy_loss - 0.01 * entropy + 0.5 * value_loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        update(optimizer)
        return loss.detach()
    batch = (torch.randn(64, 4), torch.randint(2, (64,)), torch.full((64,), -0.69), torch.randn(64), torch.randn(64),
             torch.randn(64))
    return Training([model], [optimizer], batch, step)


def dqn(form):
    """128 transitions, a target network, mean squared error."""
    online, target = relu_net(4, 2, (120, 84)), relu_net(4, 2, (120, 84))
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=2.5e-4, **form)

    def step(online, target, update, x, action, reward, following, done):
        with torch.no_grad():
            best = target(following).max(dim=1).values
            goal = reward + 0.99 * best * (1 - done)
        loss = F.mse_loss(online(x).gather(1, action).squeeze(), goal)
        optimizer.zero_grad()
        loss.backward()
        update(optimizer)
        return loss.detach()
    batch = (torch.randn(128, 4), torch.randint(2, (128, 1)), torch.randn(128), torch.randn(128, 4), torch.zeros(128))
    return Training([online, target], [optimizer], batch, step)


def sac(form):
    """256 transitions: twin critics and their targets, a squashed Gaussian policy, a temperature that is learned."""
    inputs, actions = 11, 3
    actor = relu_net(inputs, 2 * actions, (256, 256))
    critics = nn.ModuleList(relu_net(inputs + actions, 1, (256, 256)) for _ in range(2))
    targets = nn.ModuleList(relu_net(inputs + actions, 1, (256, 256)) for _ in range(2))
    targets.load_state_dict(critics.state_dict())
    log_alpha = torch.zeros(1, requires_grad=True)
    of_actor, of_critics, of_alpha = (torch.optim.Adam(p, lr=3e-4, **form)
                                      for p in (actor.parameters(), critics.parameters(), [log_alpha]))

    def act(net, x):
        mean, spread = net(x).chunk(2, -1)
        spread = (-5 + 3.5 * (torch.tanh(spread) + 1)).exp()
        raw = mean + spread * torch.randn_like(mean)
        squashed = torch.tanh(raw)
        chance = -0.5 * ((raw - mean) / spread) ** 2 - spread.log() - 0.9189385 - torch.log(1 - squashed ** 2 + 1e-6)
        return squashed, chance.sum(-1, keepdim=True)

    def step(actor, one, other, update, x, action, reward, following):
        alpha = log_alpha.exp().detach()
        with torch.no_grad():
            chosen, chance = act(actor, following)
            pair = torch.cat([following, chosen], -1)
            goal = reward + 0.99 * (torch.min(targets[0](pair), targets[1](pair)) - alpha * chance)
        pair = torch.cat([x, action], -1)
        critic_loss = F.mse_loss(one(pair), goal) + F.mse_loss(other(pair), goal)
        of_critics.zero_grad()
        critic_loss.backward()
        update(of_critics)
        chosen, chance = act(actor, x)
        pair = torch.cat([x, chosen], -1)
        actor_loss = (alpha * chance - torch.min(one(pair), other(pair))).mean()
        of_actor.zero_grad()
        actor_loss.backward()
        update(of_actor)
        alpha_loss = (-log_alpha.exp() * (chance.detach() - actions)).mean()
        of_alpha.zero_grad()
        alpha_loss.backward()
        update(of_alpha)
        with torch.no_grad():
            for mine, its in zip(critics.parameters(), targets.parameters()):
                its.mul_(0.995).add_(mine, alpha=0.005)
        return critic_loss.detach(), actor_loss.detach()
    batch = (torch.randn(256, inputs), torch.randn(256, actions).tanh(), torch.randn(256, 1), torch.randn(256, inputs))
    return Training([actor, *critics], [of_actor, of_critics, of_alpha], batch, step)


def sequences():
    return torch.randn(24, 8, 64), torch.arange(8) % 10


def gpt(width, layers, form):
    return classifier(Gpt(width, layers), torch.randint(128, (8, 32)), torch.arange(256) % 128, form)


MODELS = {
    "mlp4x32": lambda form: mlp(4, 32, 32, form),
    "mlp4x128": lambda form: mlp(4, 128, 32, form),
    "mlp4x1024": lambda form: mlp(4, 1024, 128, form),
    "mlp100x16": lambda form: mlp(100, 16, 32, form),
    "gru24": lambda form: classifier(Gru(), *sequences(), form),
    "lstm24": lambda form: classifier(Lstm(), *sequences(), form),
    "gpt64x2": lambda form: gpt(64, 2, form),
    "gpt256x4": lambda form: gpt(256, 4, form),
    "conv3": conv,
    "ppo": ppo,
    "dqn": dqn,
    "sac": sac,
}


class Contestant:
    """One way to do a step; every one starts from the same weights."""

    def __init__(self, make, form, kind):
        torch.manual_seed(1)
        if KINDS[kind]:
            torch._dynamo.reset()
            torch._inductor.config.autotune_num_choices_displayed = 0
        self.training = training = make(FORMS[form])
        nets, update = training.models, lambda optimizer: optimizer.step()
        if KINDS[kind]:
            nets = [torch.compile(model, mode=KINDS[kind]) for model in nets]
            updates = {id(o): torch.compile(o.step, mode=KINDS[kind]) for o in training.optimizers}
            update = lambda optimizer: updates[id(optimizer)]()
        self.body = lambda *batch: training.step(*nets, update, *batch)
        if kind == "steptape":
            self.body = steptape.wrap(self.body, verify=NEVER)

    def __call__(self):
        return self.body(*self.training.batch)

    def warm_up(self):
        """Seconds until the first call that takes at most 1.5 times what the last ones take."""
        times = []
        for _ in range(WARM_UP):
            times.append(seconds_of(self, 1))
        usual = statistics.median(times[-5:])
        fast = next(i for i, each in enumerate(times) if each <= 1.5 * usual)
        return sum(times[:fast + 1])

    def state(self):
        tensors = [t for model in self.training.models for t in model.state_dict().values()]
        return tensors + [t for o in self.training.optimizers for s in o.state.values() for t in s.values()]

    def denormals(self):
        """Of the numbers in its state and gradients, the share that some processors take a hundred times as long for."""
        tensors = self.state() + [p.grad for m in self.training.models for p in m.parameters() if p.grad is not None]
        floats = [t.detach() for t in tensors if t.dtype == torch.float32]
        tiny = sum(int(((t != 0) & (t.abs() < torch.finfo(torch.float32).tiny)).sum()) for t in floats)
        return tiny / sum(t.numel() for t in floats)


def seconds_of(function, calls):
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


def bytes_of(tensors):
    return [t.detach().contiguous().view(-1).view(torch.uint8).tolist() for t in tensors]


def require_equal_bits(make, form, calls=20):
    """Exits where the replayed twin and the eager one differ; whether the last calls were replayed."""
    twins = []
    for kind in ("eager", "steptape"):
        twin = Contestant(make, form, kind)
        torch.manual_seed(2)
        results = [twin() for _ in range(calls)]
        twins.append((bytes_of(twin.state()), [bytes_of(r if isinstance(r, tuple) else [r]) for r in results], twin))
    if twins[0][:2] != twins[1][:2]:
        sys.exit("the replayed step and the eager one differ")
    stats = twins[1][2].body.stats
    if stats["replayed"] < calls // 2:
        sys.exit(twins[1][2].body.explain())


def race(contestants, rounds, round_ms):
    """Medians in us, in rounds in which each has its turn."""
    calls = {k: max(1, int(round_ms / 1000 / seconds_of(c, 3))) for k, c in contestants.items()}
    times = {k: [] for k in contestants}
    for _ in range(rounds):
        for kind, contestant in contestants.items():
            times[kind].append(seconds_of(contestant, calls[kind]) * 1e6)
    return {kind: statistics.median(each) for kind, each in times.items()}


def in_cpp(tool, name, options):
    """The row of steptape_table, or None."""
    if not tool or name in ("ppo", "dqn", "sac"):
        return None
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([tool, "--workload", name, "--optimizer", "adam", "--threads", str(options.threads), "--rounds",
                        str(options.rounds), "--round-ms", str(options.round_ms), "--json", file.name,
                        *(["--flush-denormals"] if options.flush_denormals else [])],
                       check=True, stdout=subprocess.DEVNULL)
        return json.loads(pathlib.Path(file.name).read_text())[0]


def table(options):
    compiled = [k for k in KINDS if KINDS[k] and options.compile]
    print(f"{'step':<10} {'adam':<8}{'eager us':>9}{'steptape us':>12}{'ratio':>8}{'s':>7}", end="")
    print("".join(f"{k:>10}{'s':>7}" for k in compiled), end="")
    print(f"{'C++ us':>9}{'to C++':>8}{'floor us':>9}" if options.cpp else "", "denormals", flush=True)
    rows = []
    for name, make in MODELS.items():
        if options.only and name not in options.only:
            continue
        for form in options.forms:
            require_equal_bits(make, form)
            # what is compiled is the same, whichever form was asked for
            kinds = ["eager", "steptape", *(compiled if form == options.forms[0] else ())]
            contestants = {kind: Contestant(make, form, kind) for kind in kinds}
            until_fast = {kind: c.warm_up() for kind, c in contestants.items()}
            us = race(contestants, options.rounds, options.round_ms)
            cpp = in_cpp(options.cpp, name, options) if form == "loop" else None
            denormals = contestants["steptape"].denormals()
            rows.append({"step": name, "adam": form, "threads": options.threads, "us": us, "seconds": until_fast,
                         "denormals": denormals} |
                        ({"cpp_us": cpp["replay_us"], "floor_us": cpp["floor_us"]} if cpp else {}))
            print(f"{name:<10} {form:<8}{us['eager']:>9.0f}{us['steptape']:>12.1f}{us['eager'] / us['steptape']:>7.2f}x"
                  f"{until_fast['steptape']:>7.2f}", end="")
            print("".join(f"{us['eager'] / us[k]:>9.2f}x{until_fast[k]:>7.1f}" if k in us else f"{'':>17}" for k in compiled), end="")
            print(f"{cpp['replay_us']:>9.1f}{us['steptape'] / cpp['replay_us']:>7.2f}x{cpp['floor_us']:>9.1f}" if cpp else
                  f"{'':>26}" if options.cpp else "", f"{denormals:>8.1%}", flush=True)
    return rows


def scaling(options):
    print(f"{'parameters':>10}{'eager us':>10}{'first/eager':>12}{'s to replay':>12}{'plan us/p':>10}{'replay us/p':>12}", flush=True)
    rows = []
    for parameters in options.parameters:
        torch.manual_seed(1)
        layers = parameters // 2 - 1
        eager = Contestant(lambda form: mlp(layers, 16, 32, form), "loop", "eager")
        eager.warm_up()
        eager_us = statistics.median(seconds_of(eager, 1) for _ in range(7)) * 1e6
        wrapped = Contestant(lambda form: mlp(layers, 16, 32, form), "loop", "steptape")
        first = seconds_of(wrapped, 1) * 1e6
        until = first / 1e6 + wrapped.warm_up()
        replay = statistics.median(seconds_of(wrapped, 3) for _ in range(options.rounds)) * 1e6
        plan = wrapped.body.stats["variants"][0]["plan_us"]
        rows.append({"parameters": parameters, "eager_us": eager_us, "first_us": first, "seconds": until, "plan_us": plan,
                     "replay_us": replay})
        print(f"{parameters:>10}{eager_us:>10.0f}{first / eager_us:>11.1f}x{until:>12.2f}{plan / parameters:>10.1f}"
              f"{replay / parameters:>12.2f}", flush=True)
    return rows


def step_over(layers):
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3) if layers else None
    if layers:
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
    scale = torch.full((4,), 2.0)

    def step(x):
        with torch.no_grad():
            return x * scale

    wrapped = steptape.wrap(step, model=model, optimizer=optimizer, verify=NEVER)
    x = torch.ones(4)
    for _ in range(30):
        wrapped(x)
    assert wrapped.stats["replayed"] > 10, wrapped.explain()
    return lambda: wrapped(x)


def calls(options):
    """A layer is a module, two parameters with their gradients, and six tensors of optimizer state."""
    sizes = (0, 1, 30, 100, 300)
    x = torch.ones(4)
    us = race({"eager": lambda: x * 2} | {size: step_over(size) for size in sizes}, options.rounds, options.round_ms)
    print(f"{'layers':>10}{'us a call':>12}")
    for size in us:
        print(f"{size:>10}{us[size]:>12.2f}")
    a_layer = (us[300] - us[30]) / 270
    print(f"a layer: {a_layer * 1000:.0f} ns; eager is one multiplication and no step", flush=True)
    return {"us": us, "a_layer_us": a_layer}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"table": table, "scaling": scaling, "calls": calls}
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(parts))
    parser.add_argument("--only", action="append", choices=MODELS, help="this row of the table; may be given again")
    parser.add_argument("--form", action="append", choices=FORMS, dest="forms", help="of Adam; may be given again; all by default")
    parser.add_argument("--parameters", type=int, action="append", help="of scaling; 102, 402, 1602 and 6402 by default")
    parser.add_argument("--no-compile", action="store_false", dest="compile", help="without torch.compile")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--round-ms", type=int, default=100, help="how long each has its turn in a round")
    parser.add_argument("--flush-denormals", action="store_true", help="take denormal numbers for zeros, in all of them")
    parser.add_argument("--cpp", help="a built steptape_table, for the columns of C++")
    parser.add_argument("--json", type=pathlib.Path, help="write what is printed to this file, too")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(parts):
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    options.forms = options.forms or list(FORMS)
    options.parameters = options.parameters or [102, 402, 1602, 6402]
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(options.flush_denormals)
    print(f"torch {torch.__version__}, threads {options.threads}", flush=True)
    found = {name: part(options) for name, part in parts.items() if name in (options.parts or parts)}
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": cache, "TORCHINDUCTOR_MAX_AUTOTUNE_REPORT_CHOICES_STATS": "0"}
        main()
