"""The loop around the paths: model, optimizer, step and what wraps it."""
from .draft import Draft, indented, split
from .plan import EFFECTS
from .rows import fill
from .write import NAMES, Value, block, schedule

_SCHEDULED = ("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
              "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=8, gamma=0.5)")
_HELD = {  # the optimizer under another name: (lines, the name)
    "held_by_function": ("def held():\n    pass\nheld.optimizer = optimizer", "held.optimizer."),
    "held_by_class": ("class Held:\n    pass\nHeld.optimizer = optimizer", "Held.optimizer."),
    "held_in_list": ("class Held:\n    pass\nHeld.optimizers = [{'main': optimizer}]", "Held.optimizers[0]['main']."),
}
_OPTIMIZERS = {
    "sgd": "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    "momentum": "optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)",
    "adam": "optimizer = torch.optim.Adam(model.parameters(), lr=0.05)",
    "adamw": "optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)",
    "rmsprop": "optimizer = torch.optim.RMSprop(model.parameters(), lr=0.05)",
    "adagrad": "optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)",
    "scheduled": _SCHEDULED,
    **{name: f"{_SCHEDULED}\n{lines}" for name, (lines, _) in _HELD.items()},
    "own": """class Own(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                p.add_(p.grad, alpha=-group["lr"] / state["step"] ** 0.5)


optimizer = Own(model.parameters(), lr=0.1)""",
}


def source(plan):
    """The text of the plan's program."""
    draft = Draft(f"seed {plan.seed}: {plan}")
    draft.closed = plan.layout == "closure"
    positions = {"": 0, "=": 1, "*, ": 2, "**": 3}
    values = [Value(path, name) for path, name in zip(plan.paths, NAMES)]
    ends = []
    for value in values:
        _state(draft, value)
    for value in values:
        block(draft, value)
        between, early, late = schedule(value)
        draft.between += between
        draft.start += early
        ends += late
    for index, name in enumerate(plan.effects):
        effect = EFFECTS[name]
        draft.setup += split(fill(effect.setup, n=f"effect_{index}"))
        draft.start += split(fill(effect.start, n=f"effect_{index}"))
        draft.end += split(fill(effect.text, n=f"effect_{index}"))
        draft.between += split(fill(effect.between, n=f"effect_{index}"))
    draft.end += ends
    if plan.training == "scheduled" or plan.training in _HELD:
        draft.between += ["if i > 0:", "    scheduler.step()"]
    if "trainkit" in "\n".join([*draft.setup, *draft.end, *draft.start]) and not draft.package:
        draft.package = ["# what is installed"]
    _parameters(draft, values)
    lines, wrapping = _step(draft, plan)
    draft.model = _model(draft, plan) + (lines if lines[0].startswith("class Trainer") else [])
    if "trainer" in "\n".join([*draft.setup, *draft.between]) and "class Trainer" not in "\n".join(draft.model):
        draft.model += ["", "", "class Trainer:", "    pass", "", "", "trainer = Trainer()"]
    return draft.text([] if lines[0].startswith("class Trainer") else lines, wrapping)


def _state(draft, value):
    before, setup = value.setups()
    home = value.home
    top = draft.top if home.at_top else draft.setup
    if home.package:
        draft.package += [fill(row, v=value.made(value.use.values[0])) for row in [*before, value.filled(home.package, v=value.made(value.use.values[0]))]]
        draft.setup += [line for form in before for line in split(form)]
    else:
        top += [line for form in before for line in split(form)]
    top += split(setup)
    if home.at_top:
        draft.top_names.append(value.name)


def _parameters(draft, values):
    plain, defaults, keyword, rest = [], [], [], []
    given = {"plain": [], "default": []}
    for value in (v for v in values if v.home.parameter):
        text, argument = value.filled(value.home.parameter), value.filled(value.home.argument)
        if text.startswith("**"):
            rest = [text]
            draft.keywords.append(f"{value.name}={argument}")
        elif text.startswith("*, "):
            keyword.append(text[3:])
            draft.keywords.append(f"{text[3:]}={argument}")
        elif "=" in text:
            defaults.append(text)
            given["default"].append(argument)
        else:
            plain.append(text)
            given["plain"].append(argument)
    draft.arguments = [*given["plain"], *given["default"]]
    draft.parameters = ["x", "y", *plain, *defaults, *(["*", *keyword] if keyword else []), *rest]


def _model(draft, plan):
    lines = ["first = nn.Linear(6, 4)", "last = nn.Linear(4, 3)"]
    if draft.in_model:
        hidden = draft.function("hidden", ["self", "x"], ["h = torch.tanh(self.first(x))", *draft.in_model, "return h"])
        lines += ["", "", "class Model(nn.Module):", "    def __init__(self):", "        super().__init__()",
                  "        self.first, self.last = first, last", "", *indented(hidden), "", "    def forward(self, x):",
                  "        return self.last(self.hidden(x))", "", "", "model = Model()"]
    else:
        lines += ["model = nn.Sequential(first, nn.Tanh(), last)"]
    return lines + split(_OPTIMIZERS.get(plan.training, ""))


def _forward(draft):
    if draft.hidden:
        first = "h = model.hidden(x)" if draft.in_model else "h = torch.tanh(first(x))"
        lines = [first, *draft.hidden, "out = last(h)"]
    else:
        lines = ["out = model(x)"]
    return [*lines, "loss = F.mse_loss(out, y)", *draft.loss]


def _body(draft, plan):
    forward, training = _forward(draft), plan.training
    if training == "evaluation":
        body = ["with torch.no_grad():", *indented(forward)]
    elif training == "gradients":
        body = [*forward, "gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)"]
        draft.results = ["gradients", *draft.results]
    elif training == "gradients_kept":
        body = ["model.zero_grad()", *forward, "loss.backward()", *draft.gradient]
    elif training == "by_hand":
        body = ["model.zero_grad()", *forward, "loss.backward()", *draft.gradient, "with torch.no_grad():",
                "    for p in model.parameters():", "        p.sub_(p.grad, alpha=0.1)"]
    else:
        held = _HELD[training][1] if training in _HELD else "optimizer."
        body = [f"{held}zero_grad()", *forward, "loss.backward()", *draft.gradient, f"{held}step()"]
    result = "return loss.detach()"
    if draft.results:
        result = f"return loss.detach(), {', '.join(draft.results)}"
    return [*draft.start, *body, *draft.end, result]


_CALLS_IT = "def step(*args, **kwargs):\n    return trainer.step(*args, **kwargs)"
_METHODS = {  # the head of the class, and the lines that wrap its step
    "method": ("class Trainer:", "step = wrap(trainer.step)"),
    "callable": ("class Trainer:", "step = wrap(trainer)"),
    "static": ("class Trainer:", "step = wrap(Trainer.step)"),
    "of_dict": ("class Trainer(dict):", "step = wrap(trainer.step)"),
    "decorated_method": ("class Trainer:", _CALLS_IT),
    "decorated_base": ("class Trainer:", _CALLS_IT),
    "method_replaced": ("class Trainer:", _CALLS_IT),
}
_DECORATED = ("decorated_method", "decorated_base", "method_replaced")
_MADE = {
    "of_dict": "trainer = Trainer(scale=1.5)",
    "decorated_base": "class Derived(Trainer):\n    def step(self, *args, **kwargs):\n        return super().step(*args, **kwargs), 'derived'\n\n\n"
                      "trainer = Derived()",
}


def _step(draft, plan):
    """The lines that define the step, and those that wrap it."""
    body, layout, parameters = _body(draft, plan), plan.layout, draft.parameters
    if layout in _METHODS:
        name = "__call__" if layout == "callable" else "step"
        first = [] if layout == "static" else ["self"]
        if layout == "of_dict":
            draft.between += ["if i == 15:", "    trainer['scale'] = 0.5"]
            body = ["x = x * self['scale']", *body]
        if layout == "method_replaced":
            draft.between += ["if i == 15:", "    Trainer.step = lambda self, x, *args, **kwargs: x.mean()"]
        if first:
            body = [line.replace("trainer.", "self.") for line in body]
        method = draft.function(name, [*first, *parameters], body)
        above = {"static": ["@staticmethod"]}.get(layout, ["@wrap"] if layout in _DECORATED else [])
        head, made = _METHODS[layout]
        lines = [head, *indented([*above, *method]), "", "", *split(_MADE.get(layout, "trainer = Trainer()"))]
        return lines, split(made)
    if layout == "partial":
        draft.between += ["if i == 15:", "    settings['scale'] = 0.5"]
        body = ["x = x * settings['scale']", *body]
        draft.setup += ["settings = {'scale': 1.5}"]
        return draft.function("train", ["settings", *parameters], body), ["step = wrap(functools.partial(train, settings))"]
    if layout == "decorated":
        return ["@wrap", *draft.function("step", parameters, body)], []
    lines = draft.function("train", parameters, body)
    if layout == "lambda":
        return lines, ["step = wrap(lambda *args, **kwargs: train(*args, **kwargs))"]
    return lines, ["step = wrap(train)"]
