"""Names that are values: imported in the step, asked for by a text, or chosen by one."""
import sys
import types
from types import SimpleNamespace

import torch
import torch.nn.functional as F

import steptape
from reached import EDIT, Table, Training, Value, check, global_setter, rows

GAIN = 1.0
gain = global_setter(globals(), "GAIN")
names = Table()

imported = types.ModuleType("reach_names_settings")
imported.SCALE = 1.0
sys.modules[imported.__name__] = imported


def scale(changed):
    imported.SCALE = 4.0 if changed else 1.0


@names
def a_module_imported_in_the_step():
    def step(x):
        import reach_names_settings

        return x * reach_names_settings.SCALE

    return Training(step, each=scale)


@names
def a_name_imported_in_the_step():
    def step(x):
        from reach_names_settings import SCALE

        return x * SCALE

    return Training(step, each=scale)


@names
def a_global_by_its_text():
    return Training(lambda x: x * globals()["GAIN"], each=gain)


@names
def a_constant_attribute_name():
    own = Value(1.0)
    return Training(lambda x: x * getattr(own, "value", 1.0), lambda: setattr(own, "value", 4.0))


@names
def a_method_chosen_by_a_text():
    class Task:
        mode = "a"

        def loss_a(self, x):
            return x * GAIN

        def __call__(self, x):
            return getattr(self, "loss_" + self.mode)(x)

    task = Task()
    return Training(lambda x: task(x), each=gain)


@names
def another_method_chosen_by_a_text():
    class Task:
        mode = "a"

        def loss_a(self, x):
            return x

        def loss_b(self, x):
            return x * GAIN

        def __call__(self, x):
            return getattr(self, "loss_" + self.mode)(x)

    task = Task()
    return Training(lambda x: task(x), {15: lambda: setattr(task, "mode", "b"), 30: lambda: gain(True),
                                        38: lambda: gain(False)},
                    each=lambda changed: None if changed else gain(False))


@names
def an_attribute_chosen_by_an_argument():
    own = SimpleNamespace(a=1.0, b=2.0)
    return Training(lambda x, name: x * getattr(own, name), {
        EDIT: lambda: setattr(own, "a", 4.0), 32: lambda: setattr(own, "b", 5.0)},
        batch=lambda i, _: rows(i) + ("ab"[i > 24],))


@names
def all_attributes_of_an_object_at_once():
    settings = SimpleNamespace(label_smoothing=0.0)
    return Training(lambda x: F.cross_entropy(x[None] * torch.arange(3.0), torch.tensor([1]), **vars(settings)),
                    lambda: setattr(settings, "label_smoothing", 0.3))


@names.each
def test_a_name_that_is_a_value(case):
    check(case)


def test_what_a_module_does_as_it_is_loaded_is_not_the_steps(tmp_path, monkeypatch):
    """Clocks, files and random numbers that it reads are read once; nothing is watched of it, which would take long."""
    (tmp_path / "loaded_in_a_step.py").write_text(
        "import json, random, time\n"
        "NOW, DRAWN = time.time(), random.random()\n"
        "TABLE = {i: json.dumps([i, NOW]) for i in range(20000)}\n"
        "with open(__file__) as file:\n"
        "    SIZE = len(file.read())\n"
        "def scaled(x):\n"
        "    return x * FACTOR\n"
        "FACTOR = 2.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def step(x):
        from loaded_in_a_step import scaled
        return scaled(x)

    step = steptape.wrap(step, verify={"first": True, "rate": 0.0})
    for i in range(16):
        if i == 10:
            sys.modules["loaded_in_a_step"].FACTOR = 3.0
        assert step(torch.ones(2)).tolist() == 2 * [2 if i < 10 else 3]
    assert step.stats["replayed"] > 6 and not step.stats["refusals"], step.explain()
