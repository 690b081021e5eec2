"""Numbers that know what they follow from.

While a step is recorded, the hyperparameters, host values, float arguments and values read from
tensors are such numbers. Arithmetic on them gives the number that Python gives, and a formula beside
it, in reverse Polish order; a comparison gives Python's answer, and a condition that the recording
holds for. What goes where it cannot be followed (a string, a C function) is said to have escaped.
Formulas evaluate in double precision in the same order, so that their bits are Python's.
"""

import functools
import collections
import math
import operator
import sys
import threading
from types import FunctionType

import torch

from . import _engine

_LARGEST_EXACT = 2**53
_OF_ONE = {"neg", "sqrt", "abs", "floor", "ceil", "round", "trunc", "exp", "log", "sin", "cos"}  # operations


_local = threading.local()


def new_epoch():
    """From here on the numbers made before are plain ones: what they followed is of another recording."""
    _local.epoch = object()


def _epoch():
    """Of the recording that is under way in this thread."""
    return getattr(_local, "epoch", None)


def is_followed(value):
    """Whether the value is a number with a formula of the recording that is under way."""
    return type(value) in (FollowedFloat, FollowedInt) and value.epoch is _epoch()


def _formula(number):
    """The formula of an operand, or None for what has none."""
    kind = type(number)
    if is_followed(number):
        return number.formula
    if kind in (float, FollowedFloat, bool):
        return (float(plain(number)),)
    if kind in (int, FollowedInt) and -_LARGEST_EXACT <= number <= _LARGEST_EXACT:
        return (float(plain(number)),)
    return None


def _deepest(formula):
    """How many values evaluating it keeps at a time."""
    depth = deepest = 0
    for node in formula:
        if isinstance(node, str):
            depth -= 0 if node in _OF_ONE else 1
        else:
            depth += 1
            deepest = max(deepest, depth)
    return deepest


def _is_held(formula):
    """Whether the engine holds a formula of this size, and a condition on it, which takes a value more."""
    return len(formula) <= 2048 and _deepest(formula) < 16


def _is_recorded(*numbers):
    """Whether a step is being recorded and one of its followed numbers is among these."""
    return any(map(is_followed, numbers)) and _engine.is_recording()


def follow(value, formula):
    """`value` as a number that follows `formula`; of what is no finite plain number, the value."""
    if type(value) is float:
        return FollowedFloat(value, formula)
    if type(value) is int and -_LARGEST_EXACT <= value <= _LARGEST_EXACT:
        return FollowedInt(value, formula)
    return value


def plain(number):
    """The number without its formula."""
    if type(number) is FollowedFloat:
        return float.__float__(number)
    if type(number) is FollowedInt:
        return int.__int__(number)
    return number


def _escape(*numbers):
    for number in numbers:
        if _is_recorded(number):
            _engine.escape(number.formula, float(plain(number)))


def escape(value, depth=32):
    """What a function of C's is given: each followed number inside has gone where it is not followed, so that the
    recording holds for what it is. Runs no code of the program's."""
    kind = type(value)
    if kind in (FollowedFloat, FollowedInt):
        _escape(value)
    elif depth and issubclass(kind, tuple):
        for item in tuple.__iter__(value):
            escape(item, depth - 1)
    elif depth and issubclass(kind, list):
        for item in list.__iter__(value):
            escape(item, depth - 1)
    elif depth and kind in (set, frozenset, collections.deque):
        for item in value:
            escape(item, depth - 1)
    elif depth and issubclass(kind, dict):
        for key, item in dict.items(value):
            escape(key, depth - 1)
            escape(item, depth - 1)
    elif kind is slice:
        for item in (value.start, value.stop, value.step):
            escape(item, depth)


def _binary(name, operation, swapped=False):
    """The method for `self operation other`, or `other operation self`."""
    def method(self, other, modulus=None):
        a, b = (plain(other), plain(self)) if swapped else (plain(self), plain(other))
        if modulus is not None:
            _escape(self, other, modulus)
            return pow(a, b, plain(modulus))
        if not isinstance(other, (int, float)):
            if not isinstance(other, torch.Tensor):
                _escape(self)  # whatever that is, it takes the bare number
            return NotImplemented
        value = operation(a, b)
        if not _is_recorded(self, other):
            return value
        fa, fb = (_formula(other), _formula(self)) if swapped else (_formula(self), _formula(other))
        if fa is not None and fb is not None:
            formula = fa + fb + (name,)
            if name in ("mul", "mod", "floordiv") and type(value) is int:
                formula += (0.0, "add")  # no int is -0.0
            if _is_held(formula) and _stays_within(name, a, b, value, fb, formula):
                return follow(value, formula)
        _escape(self, other)
        return value
    return method


_INTEGERS_WITHIN = 2**52


def _stays_within(name, a, b, value, divisor, formula):
    """Requires that Python goes on giving a number of this kind, and raises nothing: False where that cannot
    be put into a condition."""
    if name in ("div", "mod", "floordiv"):
        _engine.require(divisor + (0.0, "eq"), False)
    if type(value) is int:
        return name != "pow" and _is_small(value, formula)
    if type(value) is not float:
        return False
    if name == "pow":
        _engine.require(formula + formula + ("sub", 0.0, "eq"), True)  # finite
        return type(a) is float or type(b) is float
    return True


def _is_small(value, formula):
    """Requires that the formula goes on giving an int that a float holds."""
    if abs(value) > _INTEGERS_WITHIN:
        return False
    _engine.require(formula + (float(_INTEGERS_WITHIN), "le"), True)
    _engine.require((float(-_INTEGERS_WITHIN),) + formula + ("le",), True)
    return True


def _comparison(name, operation, swap=False, negate=False):
    def method(self, other):
        if not isinstance(other, (int, float)):
            return NotImplemented
        value = operation(plain(self), plain(other))
        if not _is_recorded(self, other):
            return value
        fa, fb = _formula(self), _formula(other)
        formula = (fb + fa if swap else fa + fb) + (name,) if fa and fb else ()
        if not formula or not _is_held(formula):
            _escape(self, other)
        else:
            # a NaN makes every comparison false, so that what was found is required as it is
            _engine.require(formula, value != negate)
        return value
    return method


def _escaping(base, name):
    original = getattr(base, name)

    def method(self, *args):
        _escape(self)
        return original(plain(self), *args)
    return method


def _escaping_attribute(base, name):
    def get(self):
        _escape(self)
        return getattr(plain(self), name)
    return get


def _ufunc(self, ufunc, method, *inputs, **options):
    """NumPy's functions take the bare numbers."""
    _escape(*inputs)
    return getattr(ufunc, method)(*map(plain, inputs), **options)


_stand_ins = {}  # by the id of what they stand for, which `_originals` keeps
_originals = {}  # by function


def stand_in(original, make):
    """`make(original)`, which takes the place of that function while steps are recorded: whoever looks at what
    the program reaches sees the original."""
    if id(original) not in _stand_ins:
        function = _stand_ins[id(original)] = make(original)
        _originals[function] = original
        _engine.stand_in(function, original)
    return _stand_ins[id(original)]


def stood_for(value):
    """The function that a stand-in is there for; the value itself where it is none."""
    return _originals.get(value, value) if type(value) is FunctionType else value


def without(value, depth=16):
    """The value without followed numbers; containers and objects stay those that they are."""
    kind = type(value)
    if kind in (FollowedFloat, FollowedInt):
        return plain(value)
    if depth == 0 or issubclass(kind, (torch.Tensor, torch.nn.Module, torch.optim.Optimizer, type)):
        return value
    if kind in (list, collections.deque) or issubclass(kind, tuple):
        items = [without(item, depth - 1) for item in (tuple.__iter__(value) if issubclass(kind, tuple) else value)]
        if any(a is not b for a, b in zip(items, value)):
            if issubclass(kind, tuple):
                return tuple.__new__(kind, items)
            for i, item in enumerate(items):
                value[i] = item
    elif kind is set:
        for item in [item for item in value if type(item) in (FollowedFloat, FollowedInt)]:
            value.remove(item)
            value.add(plain(item))
    else:
        held = value if issubclass(kind, dict) else _dict_of(value)
        for key, item in list(dict.items(held)) if held else ():
            clean = without(item, depth - 1)
            if clean is not item:
                dict.__setitem__(held, key, clean)
    return value


def _dict_of(value):
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return held if type(held) is dict else None


def strip(owner, key):
    """Takes followed numbers out of what a place holds; lists and dicts in place."""
    value = _engine.held_at(owner, key)
    clean = without(value)
    if clean is not value:
        _engine.put_at(owner, key, clean)


def _members(base):
    members = {}
    for name, symbol, operation in (("add", "add", operator.add), ("sub", "sub", operator.sub),
                                    ("mul", "mul", operator.mul), ("truediv", "div", operator.truediv),
                                    ("pow", "pow", operator.pow), ("mod", "mod", operator.mod),
                                    ("floordiv", "floordiv", operator.floordiv)):
        members[f"__{name}__"] = _binary(symbol, operation)
        members[f"__r{name}__"] = _binary(symbol, operation, swapped=True)
    members["__lt__"] = _comparison("lt", operator.lt)
    members["__le__"] = _comparison("le", operator.le)
    members["__gt__"] = _comparison("lt", operator.gt, swap=True)
    members["__ge__"] = _comparison("le", operator.ge, swap=True)
    members["__eq__"] = _comparison("eq", operator.eq)
    members["__ne__"] = _comparison("eq", operator.ne, negate=True)

    def negated(self):
        if not _is_recorded(self):
            return -plain(self)
        # no int is -0.0
        negative = (0.0, *self.formula, "sub") if base is int else (*self.formula, "neg")
        return follow(-plain(self), negative)

    def formula_now(self):
        return self.formula if is_followed(self) else None

    def is_true(self):
        value = bool(plain(self))
        if _is_recorded(self):
            _engine.require(self.formula + (0.0, "eq"), not value)
        return value

    def absolute(self):
        value = abs(plain(self))
        return follow(value, (*self.formula, "abs")) if _is_recorded(self) else value

    def to_int(name, function):
        """The method for a function that gives an int."""
        def method(self, *args):
            value = function(plain(self), *args)
            if _is_recorded(self):
                formula = self.formula if base is int else (*self.formula, name, 0.0, "add")
                if not args and _is_held(formula) and _is_small(value, formula):
                    return follow(value, formula)
                _escape(self)
            return value
        return method

    def converted(name):
        original = getattr(base, name)

        def method(self):
            if not _local.__dict__.pop("converts", False):  # by `convert`
                _escape(self)
            return original(plain(self))
        return method

    for name in ("__int__", "__float__"):
        members[name] = converted(name)
    members["__abs__"] = absolute
    for name, function in (("floor", math.floor), ("ceil", math.ceil), ("trunc", math.trunc), ("round", round)):
        members[f"__{name}__"] = to_int(name, function)
    members["formula_now"] = formula_now
    members["__neg__"] = negated
    members["__pos__"] = lambda self: self
    members["__bool__"] = is_true
    members["__hash__"] = _escaping(base, "__hash__")
    for name in ("__str__", "__repr__", "__format__", "__divmod__", "__rdivmod__", "as_integer_ratio", "hex", "is_integer", "__index__",
                 "__lshift__", "__rshift__", "__and__", "__or__", "__xor__", "__invert__", "bit_length",
                 "__rlshift__", "__rrshift__", "__rand__", "__ror__", "__rxor__", "bit_count", "conjugate",
                 "__getnewargs__"):
        if hasattr(base, name):
            members[name] = _escaping(base, name)
    for name in ("real", "imag", "numerator", "denominator"):
        if hasattr(base, name):
            members[name] = property(_escaping_attribute(base, name))
    def reduced(self, *_):
        _escape(self)
        return base, (plain(self),)

    members["__reduce__"] = members["__reduce_ex__"] = reduced
    members["__array_ufunc__"] = _ufunc
    members["__copy__"] = lambda self: self
    members["__deepcopy__"] = lambda self, memo: self
    return members


def followed_extreme(builtin, name):
    """`max` or `min` that follow: of two numbers of one kind the result has a formula, no condition."""
    def of_two(a, b):
        fa, fb = _formula(a), _formula(b)
        if fa is not None and fb is not None and type(plain(a)) is type(plain(b)):
            # Python keeps the first unless the second is greater
            formula = fb + fa + (name,)
            if _is_held(formula):
                return follow(builtin(plain(a), plain(b)), formula)
        # a float's own comparison would not ask a followed int
        is_other = (b > a if is_followed(b) else a < b) if name == "max" else (b < a if is_followed(b) else a > b)
        return b if is_other else a

    def extreme(*args, **kwargs):
        if not args or not _engine.is_recording():
            return builtin(*args, **kwargs)
        if len(args) == 1:
            if type(args[0]) not in (list, tuple):
                args = (list(args[0]),)  # what code of C's goes over shows nothing
            numbers = args[0]
        else:
            numbers = args
        if key := kwargs.get("key"):
            # the keys are compared by code of C's; each is made once, in order
            keys = [key(number) for number in numbers]
            escape(keys)
            made = iter(keys)
            return builtin(*args, **{**kwargs, "key": lambda _: plain(next(made))})
        if kwargs or not any(map(is_followed, numbers)):
            escape(numbers if type(numbers) in (list, tuple) else list(numbers))
            return builtin(*args, **kwargs)
        if all(isinstance(number, (int, float)) for number in numbers):
            return functools.reduce(of_two, numbers)
        announce(numbers)  # to comparisons with tensors
        try:
            return builtin(*args)
        finally:
            _engine.withdraw()
    return extreme


def _is_defined(name, formula):
    """The condition under which Python's `math` gives a number for what the formula gives, and raises nothing."""
    if name == "sqrt":
        return (*formula, 0.0, "lt"), False
    if name == "log":
        return (0.0, *formula, "lt"), True
    if name == "exp":
        return (*formula, "exp", sys.float_info.max, "le"), True
    return (*formula, *formula, "sub", 0.0, "eq"), True


def followed_function(function, name):
    """A function of `math` that follows."""
    def followed(*args):
        value = function(*map(plain, args))
        if not _is_recorded(*args):
            return value
        if len(args) == 1:
            formula = (*args[0].formula, name)
            condition, holds = _is_defined(name, args[0].formula)
            if _is_held(condition) and bool(math.isfinite(value)):
                _engine.require(condition, holds)
                return follow(value, formula)
        _escape(*args)
        return value
    return followed


def convert(number, kind):
    """What `kind`, int or float, gives for the number, followed; None where that cannot be. The number's own method
    then lets it go without having escaped. No kind: the float that takes the place of an int."""
    if not _is_recorded(number) or not math.isfinite(plain(number)):
        return None
    value = (kind or float)(plain(number))
    formula = number.formula
    if kind is int and type(number) is FollowedFloat:
        formula = (*formula, "trunc", 0.0, "add")
        if not _is_held(formula) or not _is_small(value, formula):
            return None
    _local.converts = kind is not None
    return follow(value, formula)


def advance_of(number, counter):
    """What was added to a counter, (kind, path), where a followed int is that and nothing else; or None."""
    parts = []  # (how often the counter, how much besides), in reverse Polish order
    for node in number.formula:
        if isinstance(node, tuple):
            parts.append((1, 0.0) if node == counter else (2, 0.0))
        elif not isinstance(node, str):
            parts.append((0, node))
        elif node in ("add", "sub"):
            sign = 1 if node == "add" else -1
            (a, b), (c, d) = parts[-2:]
            parts[-2:] = [(a + sign * c, b + sign * d)]
        else:
            return None
    (times, by), = parts
    return int(by) if times == 1 and by == int(by) else None


def _make(base, name):
    def construct(cls, value=0, formula=None):
        if type(formula) is not tuple:  # by code that has asked a number for its class
            return base(plain(value)) if formula is None else base(plain(value), plain(formula))
        self = base.__new__(cls, value)
        self.formula = formula
        self.epoch = _epoch()
        return self
    members = _members(base)
    members["__new__"] = construct
    members["__doc__"] = f"A {base.__name__} that knows its formula."
    return type(name, (base,), members)


FollowedFloat = _make(float, "FollowedFloat")
FollowedInt = _make(int, "FollowedInt")


def numbers_in(value, found, item=-1, depth=3):
    """Appends (number, formula, item) for each followed number in an argument: its position in the list
    that it stands in, or -1."""
    if is_followed(value):
        found.append((plain(value), value.formula, item))
    elif depth and type(value) in (list, tuple):
        for i, element in enumerate(value):
            numbers_in(element, found, i, depth - 1)
    elif depth and type(value) is dict:
        for element in value.values():
            numbers_in(element, found, -1, depth - 1)
    elif type(value) is slice:
        for element in (value.start, value.stop, value.step):
            numbers_in(element, found, -1, depth)
    return found


def announce(values):
    """Tells the recorder of the followed numbers in what a function of torch's is given; whether there are any."""
    numbers = []
    for value in values:
        numbers_in(value, numbers)
    if numbers:
        _engine.announce(numbers)
    return bool(numbers)


def follow_read(value, read):
    """What host read `read` gave, as a number that follows it."""
    return follow(value, (("host_read", f"ops[{read}]"),))
