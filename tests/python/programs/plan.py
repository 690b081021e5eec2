"""What a program is made of, by the names of the grammar's rows; drawn from a seed.

Not drawn, since docs/blind_spots.md excludes it:
    files, clocks, environment variables, sockets   a replay does not read them again
    printing                                        is not done by a replay
    __repr__ and __str__ of the program's objects   what their code reads is not guarded
    attributes of tensors that are arguments        are left alone
    hooks of autograd nodes, threads, signals       are not seen
and, since it would take most of the time: callees that Dynamo compiles, which have tests of their own.
"""
import dataclasses
import random

from . import effects, forms, homes_c, homes_names, homes_objects, homes_torch, roads, uses_choices, uses_numbers
from .rows import by_name, fits

HOMES = by_name(homes_names.NAMES, homes_names.ARGUMENTS, homes_names.MODULES, homes_objects.OBJECTS, homes_objects.CLASSES,
                homes_torch.TORCH, homes_c.HELD, homes_c.MOVING)
FORMS = by_name(forms.CONTAINERS, forms.NUMBERS, forms.TENSORS)
ROADS = {row.name: row for table in (roads.THROUGH_PYTHON, roads.THROUGH_C, roads.NUMBERS) for row in table}
USES = {}
for _table in (uses_numbers.OPERANDS, uses_numbers.BACKWARD, uses_numbers.LOSSES, uses_numbers.UPDATES, uses_numbers.BRANCHES,
               uses_numbers.RESULTS, uses_choices.INTS, uses_choices.BOOLS, uses_choices.TEXTS, uses_choices.TENSORS, uses_choices.FUNCTIONS):
    for _row in _table:
        USES[_row.name if _row.name not in USES else f"backward_{_row.name}"] = _row
EFFECTS = {row.name: row for row in effects.EFFECTS}
MOVING = {row.name for row in homes_c.MOVING}
COUNTS = {"tensor_size", "module_count"}  # homes that hold as many things as the value says
COUNTED = {"counted", "times_text", "loop"}  # roads that take as many steps, or bytes, as the value says
INNERMOST = {row.name for row in (*forms.NUMBERS, *forms.TENSORS)} | {"length", "set"}

LAYOUTS = ("function", "closure", "method", "callable", "lambda", "partial", "decorated", "decorated_method", "static", "of_dict",
           "decorated_base", "method_replaced")
WITH_OPTIMIZER = ("sgd", "momentum", "adam", "adamw", "rmsprop", "adagrad", "own", "scheduled",
                  "held_by_function", "held_by_class", "held_in_list")
WITHOUT_OPTIMIZER = ("by_hand", "gradients_kept", "gradients", "evaluation")
SITES = ("inline", "helper", "read_apart", "use_apart", "module", "model", "method", "package")
CHANGES = {"never": 12, "once": 24, "twice": 12, "back": 8, "each": 6, "drift": 5, "slow": 5, "same": 5, "same_then_other": 6, "appears": 7,
           "disappears": 3, "in_step_late": 2, "in_step_early": 1, "computed": 3, "computed_after": 3}


@dataclasses.dataclass
class Path:
    """One value: where it is kept, how it is read, what it feeds, and when it changes."""
    use: str
    home: str
    forms: list  # the innermost first
    roads: list
    change: str
    site: str
    is_bound: bool  # to a local name before it is used
    salt: int  # of the smaller choices

    def __str__(self):
        kept = " in ".join([*self.forms, self.home])
        way = " > ".join(self.roads)
        return f"{kept} {f'> {way} ' if way else ''}> {self.use} ({self.site}), {self.change}"


@dataclasses.dataclass
class Plan:
    seed: int
    layout: str
    training: str
    paths: list
    effects: list

    def __str__(self):
        return "; ".join([f"{self.layout}, {self.training}", *map(str, self.paths), *(f"effect {name}" for name in self.effects)])


def draw(seed):
    """The plan of a seed; the same as long as the grammar is."""
    rng = random.Random(f"program {seed}")
    layout = rng.choices(LAYOUTS, (30, 15, 20, 5, 8, 6, 8, 4, 3, 3, 2, 2))[0]
    training = rng.choice(WITH_OPTIMIZER if rng.random() < 0.7 else WITHOUT_OPTIMIZER)
    count = rng.choices((1, 2, 3), (65, 27, 8))[0]
    paths = [_path(rng, training) for _ in range(count)]
    return Plan(seed, layout, training, paths, [rng.choice(list(EFFECTS))] if rng.random() < 0.2 else [])


def _path(rng, training):
    has_gradients = training not in ("gradients", "evaluation")
    kind = rng.choices(("float", "int", "bool", "str", "tensor", "function"), (48, 24, 9, 6, 9, 4))[0]
    use = rng.choice([name for name, row in USES.items() if row.kind == kind and (has_gradients or row.stage != "gradient")
                      and ("optimizer" not in row.text or training in WITH_OPTIMIZER)])
    kept = [] if use == "int_result_beyond_doubles" else _forms(rng, kind)
    holds_tensor = kind == "tensor" or any(FORMS[name].is_tensor or name == "module_buffer" for name in kept)
    home = rng.choice([name for name, row in HOMES.items() if (row.tensors or not holds_tensor)
                       and (row.kinds == "any" or fits(row, kind) and not kept)
                       and ("optimizer" not in row.setup or training in WITH_OPTIMIZER)
                       and not (name in MOVING and (kept or rng.random() < 0.7))
                       and not (name in COUNTS and use == "int_result_beyond_doubles")])
    ways = [name for name, row in ROADS.items() if fits(row, kind) and not (name in COUNTED and use == "int_result_beyond_doubles")]
    taken = [rng.choice(ways) for _ in range(rng.choices((0, 1, 2), (60, 32, 8))[0])]
    row = HOMES[home]
    changes = {name: weight for name, weight in CHANGES.items() if _may_change(name, row, kind, kept)}
    change = rng.choices(list(changes), list(changes.values()))[0]
    site = rng.choices(SITES, (45, 10, 8, 8, 8, 8, 5, 8))[0]
    if row.parameter and site not in ("inline", "use_apart", "package"):
        site = "inline"
    if site == "model" and (USES[use].stage != "hidden" or home in ("model_attribute",) or "optimizer" in row.setup):
        site = "inline"
    return Path(use, home, kept, taken, change, site, rng.random() < 0.5, rng.randrange(10**6))


def _forms(rng, kind):
    """What the value is put into: mostly nothing, else a number's or tensor's form and containers around it."""
    kept = []
    fitting = [name for name in sorted(INNERMOST) if fits(FORMS[name], kind)]
    if fitting and rng.random() < 0.4:
        tensors = [name for name in fitting if FORMS[name].is_tensor or name == "module_buffer"]
        kept.append(rng.choice(tensors if tensors and rng.random() < 0.5 else fitting))
    containers = sorted(name for name, row in FORMS.items() if name not in INNERMOST)
    for chance in (0.3, 0.25):
        if rng.random() < chance:
            kept.append(rng.choice(containers))
    return kept


def _may_change(change, home, kind, kept):
    if home.name in MOVING:
        return change == "never"
    if change == "appears":
        return bool(home.absent and home.late_reads)
    if change == "disappears":
        return bool(home.delete and home.late_reads)
    if home.name == "code_replaced" and change in ("each", "drift", "slow", "same_then_other"):
        return False  # the number of the call would be closed over
    if change in ("drift", "slow"):
        return kind == "float" and "enum" not in kept
    if change.startswith(("in_step", "computed")):
        writes = "".join(home.writes)
        is_lazy = "lambda" in writes or "def " in writes or "function" in kept  # it would read itself
        kinds = ("float", "int", "bool") if change.startswith("in_step") else ("float", "int")
        return (kind in kinds and not home.parameter and not is_lazy
                and not {"enum", "one_hot", "set"} & set(kept))
    return True
