"""Classes that a step reaches change: their attributes, bases, descriptors and special methods."""
import dataclasses
import functools

import torch
import torch.nn as nn

from reached import EDIT, Table, Training, Value, check, global_setter

GAIN = 1.0
gain = global_setter(globals(), "GAIN")
classes = Table()


@classes
def a_dict_of_a_module_class_changes_in_place():
    class Net(nn.Module):
        table = {"gain": 1.0}

        def forward(self, x):
            return x * self.table["gain"]

    net = Net()
    return Training(lambda x: net(x), lambda: Net.table.update(gain=3.0))


@classes
def a_list_of_a_class_changes_in_place():
    class Settings:
        table = [1.0, 2.0]

    settings = Settings()
    return Training(lambda x: x * settings.table[0], lambda: Settings.table.__setitem__(0, 3.0))


class Doubling:
    def scaled(self, x):
        return x * 2


class Tripling:
    def scaled(self, x):
        return x * 3


@classes
def the_bases_of_a_class_change():
    class Own(Doubling):
        pass

    own = Own()
    return Training(lambda x: own.scaled(x), lambda: setattr(Own, "__bases__", (Tripling,)))


@classes
def the_bases_of_a_module_class_change():
    class Net(Doubling, nn.Module):
        def forward(self, x):
            return self.scaled(x)

    net = Net()
    return Training(lambda x: net(x), lambda: setattr(Net, "__bases__", (Tripling, nn.Module)))


@classes
def an_object_gets_another_class():
    own = Doubling()
    return Training(lambda x: own.scaled(x), lambda: setattr(own, "__class__", Tripling))


@classes
def an_object_gets_another_dict():
    own = Value(1.0)
    return Training(lambda x: x * own.value, lambda: setattr(own, "__dict__", {"value": 4.0}))


@classes
def a_module_gets_another_dict_and_another_class():
    dropout = nn.Dropout(0.5)
    return Training(lambda x: dropout(x), {
        EDIT: lambda: setattr(dropout, "__dict__", {**dropout.__dict__, "p": 0.25}),
        26: lambda: dropout.__dict__.update(p=0.5),
        30: lambda: setattr(dropout, "__class__", nn.AlphaDropout),
        34: lambda: setattr(dropout, "__class__", nn.Dropout),
        38: lambda: dropout.__dict__.update(p=0.75)})


@classes
def a_descriptor_reads_a_global():
    class Weight:
        def __get__(self, owner, kind):
            return GAIN

    class Own:
        weight = Weight()

    own = Own()
    return Training(lambda x: x * own.weight, each=gain)


@classes
def a_descriptor_has_state():
    class Weight:
        value = 1.0

        def __get__(self, owner, kind):
            return self.value

    weight = Weight()
    own = type("Own", (), {"weight": weight})()
    return Training(lambda x: x * own.weight, lambda: setattr(weight, "value", 4.0))


@classes
def a_cached_property_is_dropped_before_each_call():
    state = Value(1.0)

    class Own:
        @functools.cached_property
        def weight(self):
            return state.value

    own = Own()

    def each(changed):
        state.value = 4.0 if changed else 1.0
        own.__dict__.pop("weight", None)

    return Training(lambda x: x * own.weight, each=each, holds=lambda: [dict(vars(own))])


@classes
def a_setter_reads_a_global():
    class Own:
        @property
        def weight(self):
            return 1.0

        @weight.setter
        def weight(self, value):
            self.product = value * GAIN

    own = Own()

    def step(x):
        own.weight = 2.0
        return x * own.product

    return Training(step, each=gain, holds=lambda: [own.product])


@classes
def a_metaclass_has_a_property():
    class Meta(type):
        @property
        def weight(cls):
            return GAIN

    class Own(metaclass=Meta):
        pass

    return Training(lambda x: x * Own.weight, each=gain)


@classes
def init_reads_a_global():
    class Own:
        def __init__(self):
            self.value = GAIN

    return Training(lambda x: x * Own().value, each=gain)


@classes
def new_reads_a_global():
    class Own:
        def __new__(cls):
            own = object.__new__(cls)
            own.value = GAIN
            return own

    return Training(lambda x: x * Own().value, each=gain)


@classes
def post_init_reads_a_global():
    @dataclasses.dataclass
    class Own:
        value: float = 0.0

        def __post_init__(self):
            self.value = GAIN

    return Training(lambda x: x * Own().value, each=gain)


@classes
def an_order_of_objects_reads_a_global():
    class Item:
        def __init__(self, value):
            self.value = value

        def __lt__(self, other):
            sign = 1.0 if GAIN == 1.0 else -1.0
            return self.value * sign < other.value * sign

    items = [Item(1.0), Item(2.0)]
    return Training(lambda x: x * sorted(items)[0].value, each=gain)


@classes
def a_mask_of_a_class_is_transposed_in_place():
    class Net(nn.Module):
        mask = torch.arange(9.0).view(3, 3)

        def forward(self, x):
            return x @ self.mask

    Net.mask = torch.arange(9.0).view(3, 3)
    net = Net()
    return Training(lambda x: net(x), lambda: Net.mask.t_())


@classes.each
def test_a_class_changes(case):
    check(case)
