"""Writes the text of a plan's program."""
import random

from .draft import Draft, indented, split
from .plan import EFFECTS, FORMS, HOMES, ROADS, USES
from .rows import fill

CALLS = 24
NAMES = ("gamma", "delta", "kappa", "omega")
LONG = 60  # of what a step reads on in each call


class Value:
    """The texts of one path: made, read, and changed."""

    def __init__(self, path, name):
        self.path, self.name = path, name
        self.rng = random.Random(f"path {path.salt}")
        self.use, self.home = USES[path.use], HOMES[path.home]
        self.forms = [FORMS[name] for name in path.forms]
        self.kind = self.use.kind
        late = path.change in ("appears", "disappears")
        reads = self.home.late_reads if late else self.home.reads
        self.ways = [self.rng.choice(row.reads) for row in reversed(self.forms)]
        self.home_read = self.rng.choice(reads)

    def filled(self, text, **more):
        values = self.use.values
        names = {"n": self.name, "d": self.made(values[0]), "vs": f"[{', '.join(self.made(v) for v in values)}]",
                 "long": f"[{self.made(values[0])}] * 12 + [{self.made(values[1])}] * {LONG}"}
        return fill(fill(text, **{**names, **more}), me="trainer")

    def form_names(self, index, **more):
        members = "\n".join(f"    m{i} = {value}" for i, value in enumerate(self.use.values))
        return {"n": f"{self.name}_{index}", "t": self.kind, "members": members, **more}

    def made(self, value, upto=None):
        for index, row in list(enumerate(self.forms))[:upto]:
            value = fill(row.make, **self.form_names(index, v=value))
        return value

    def setups(self):
        """The lines that come before anything of the path is used."""
        before = [fill(row.setup, **self.form_names(i)) for i, row in enumerate(self.forms) if row.setup]
        absent = self.path.change == "appears"
        before += [f"{self.name}_calls = [0]"] if self.path.change.startswith("computed") else []
        return before, self.filled(self.home.absent if absent else self.home.setup, v=self.made(self.use.values[0]))

    def read(self, outside=False):
        """The expression of the value, as the step reads it."""
        base = self.name if outside and self.home.parameter else self.filled(self.home_read)
        for index, way in zip(reversed(range(len(self.forms))), self.ways):
            base = fill(way, **self.form_names(index, r=base))
        return base

    def on_the_road(self):
        text, helpers = self.read(), []
        for index, name in enumerate(self.path.roads):
            row = ROADS[name]
            names = {"n": f"{self.name}_way{index}", "vs": f"[{', '.join(self.use.values)}]"}
            helpers += [fill(row.setup, **names)] if row.setup else []
            text = fill(row.text, r=text, **names)
        return text, helpers

    def writes(self, value):
        """Lines that give it another value: where it is kept, or in place in what holds it."""
        places = [i for i, row in enumerate(self.forms) if row.changes and "function" not in self.path.forms[i + 1:]]
        if places and self.rng.random() < 0.6 and self.can_change_in_place():
            index = self.rng.choice(places)
            target = self.name if self.home.parameter else self.filled(self.home.reads[0])
            for i in reversed(range(index + 1, len(self.forms))):
                target = fill(self.forms[i].reads[0], **self.form_names(i, r=target))
            change = self.rng.choice(self.forms[index].changes)
            return split(fill(change, **self.form_names(index, r=target, v=self.made(value, index))))
        return split(self.filled(self.rng.choice(self.home.writes), v=self.made(value)))

    def can_change_in_place(self):
        """Not where each read makes it anew, nor what is put into an immutable thing."""
        return (not self.home.parameter or self.home.writes[0] == "$n = $v") and self.path.change not in ("appears", "disappears")


def schedule(value):
    """Lines of `between(i)` and of the step's beginning and end, by which the value changes."""
    change, values, rng = value.path.change, value.use.values, value.rng
    first = rng.randrange(6, 14)
    second = first + rng.randrange(1, 5)
    state = rng.getstate()

    def write(text):
        rng.setstate(state)  # the same way each time
        return value.writes(text)

    def when(call, lines):
        return [f"if i == {call}:", *indented(lines)]

    if change == "never":
        return [], [], []
    if change in ("once", "appears"):
        return when(first, write(values[1])), [], []
    if change == "twice":
        return when(first, write(values[1])) + when(second, write(values[2 % len(values)])), [], []
    if change == "back":
        return when(first, write(values[1])) + when(second, write(values[0])), [], []
    if change == "each":
        return write(f"[{', '.join(values)}][i % {len(values)}]"), [], []
    if change == "drift":
        return write(f"{values[0]} * 0.97 ** i"), [], []
    if change == "slow":
        return write(f"{values[0]} * 0.9 ** (i // 5)"), [], []
    if change == "same":
        return write(values[0]), [], []
    if change == "same_then_other":
        return write(f"({values[0]} if i < {first} else {values[1]})"), [], []
    if change == "disappears":
        return [*when(second, split(value.filled(value.home.delete))), *when(1, write(values[1]))], [], []
    if change.startswith("computed"):  # and stands still until then: in the second case, until it runs as a loaded step
        count, late = f"{value.name}_calls", first if change == "computed" else CALLS + 2
        step = f"({values[1]} - {values[0]}) * min({count}[0] // {late}, 1)"
        return [], [], [f"{count}[0] += 1", *write(f"{values[0]} + {step}")]
    now = value.read()
    lines = write({"float": lambda: f"{now} * 0.97", "bool": lambda: f"not {now}", "int": lambda: _next_int(now, values)}[value.kind]())
    return ([], lines, []) if change == "in_step_early" else ([], [], lines)


def _next_int(now, values):
    following = {int(a): int(b) for a, b in zip(values, [*values[1:], values[0]])}
    return f"{following}[{now}]"


def block(draft, value):
    """Puts the path's read and use into the program, at its site."""
    path, use = value.path, value.use
    text, helpers = value.on_the_road()
    draft.helpers += helpers
    name = value.name
    if use.setup:
        draft.setup += split(fill(use.setup, n=f"{name}_use"))
    is_result = use.stage == "result"
    given = {"hidden": ["h"], "loss": ["loss", "out", "x", "y"], "gradient": [], "result": ["x"]}[use.stage]
    back = {"hidden": "h", "loss": "loss", "gradient": "None", "result": None}[use.stage]

    is_bound = path.is_bound or "f'" in use.text  # quotes of an f-string's own cannot stand in it

    def using(v):
        return fill(use.text, n=f"{name}_use", v=v)

    def lines(v):
        bound = [f"{name}_now = {v}"] if is_bound else []
        inner = using(f"{name}_now" if is_bound else v)
        return [*bound, f"return {inner}"] if is_result else [*bound, *split(inner), f"return {back}"]

    stage = {"hidden": draft.hidden, "loss": draft.loss, "gradient": draft.gradient}.get(use.stage)

    def put(expression):
        if is_result:
            draft.results.append(expression)
        else:
            stage.append(f"{back} = {expression}" if back != "None" else expression)

    site = path.site
    if site == "inline":
        if is_result and not is_bound:
            draft.results.append(using(text))
        elif is_result:
            draft.end.append(f"{name}_now = {text}")
            draft.results.append(using(f"{name}_now"))
        else:
            stage.extend(lines(text)[:-1])
    elif site == "model":
        draft.in_model += lines(text)[:-1]
    elif site == "helper":
        draft.helpers += ["\n".join(draft.function(f"use_{name}", given, lines(text)))]
        put(f"use_{name}({', '.join(given)})")
    elif site == "read_apart":
        draft.helpers += [f"def value_of_{name}():\n    return {text}"]
        text = f"value_of_{name}()"
        if is_result:
            draft.end += [f"{name}_now = {text}"]
            draft.results.append(using(f"{name}_now"))
        else:
            stage.extend(lines(text)[:-1])
    elif site in ("use_apart", "package"):
        function = draft.function(f"use_{name}", [*given, "value"], lines("value"))
        can_move = site == "package" and not use.setup and not {"model", "optimizer", "first", "last"} & set(_words(use.text))
        (draft.package if can_move else draft.helpers).append("\n".join(function))
        draft.setup += ["import trainkit"] if can_move and "import trainkit" not in draft.setup else []
        put(f"{'trainkit.' if can_move else ''}use_{name}({', '.join([*given, text])})")
    elif site in ("module", "method"):
        base, method = ("nn.Module", "forward") if site == "module" else ("object", "use")
        inner = draft.function(method, ["self", *given], lines(text))
        draft.helpers += [f"class Part_{name}({base}):\n" + "\n".join(indented(inner)) + f"\n\n\npart_{name} = Part_{name}()"]
        put(f"part_{name}{'' if site == 'module' else '.use'}({', '.join(given)})")


def _words(text):
    return "".join(c if c.isalnum() or c == "_" else " " for c in text).split()
