"""A followed number that goes into code of C's, which reads it without asking: what the step does with it is eager's in each call, and
where it is not followed, the plan holds for what it is. The number is an argument, stands in a list in a dict that is one, or in an
attribute that holds another one in each call.
"""
import array
import collections
import contextlib
import decimal
import enum
import functools
import itertools
import json
import math
import numbers
import operator
import pathlib
import pickle
import random
import statistics
import struct
import types

import numpy
import pytest
import torch

import steptape

CALLS = 30
SEVENTEEN = 17
TRUE = True
FLOATS = [float(k) for k in range(40)]
Pair = collections.namedtuple("Pair", "a b")


class Phase(enum.IntEnum):
    LATE = 17


class Equal:
    def __init__(self, how):
        self.how = how

    __eq__ = lambda self, other: self.how  # which shows no name
    __hash__ = lambda self: 1


class Name(str):
    """A text that answers `how` where it is compared, with the hash of the name of a parameter."""

    __eq__ = lambda self, other: self.how
    __hash__ = lambda self: hash("first")


def name(how):
    made = Name("other")
    made.how = how
    return made


def named(first=1, **rest):
    return len(rest)


class Key:
    """Found under the text "first" where `how` is."""

    def __init__(self, how):
        self.how = how

    __eq__ = lambda self, other: self.how
    __hash__ = lambda self: hash("first")


def found(mapping):
    match mapping:
        case {Constants.FIRST: value}:
            return value
    return None


class Constants:
    FIRST = "first"


def passed_on(function):
    def of_all(*given):
        return function(*given)
    return of_all


class NotUnequal:
    """Whose methods are one code: that of its decorator."""

    __eq__ = passed_on(lambda self, other: 1)
    __ne__ = passed_on(lambda self, other: NotImplemented)


class EqualByDecorator:
    def __init__(self, how):
        self.how = how

    __eq__ = passed_on(lambda self, other: self.how)


class OwnKey:
    """A mapping that is a key of its own, and is compared by the code that gives its items."""

    def __init__(self, how):
        self.how = how

    def keys(self):
        return [self, OwnKey(0)]

    def __getitem__(self, key):
        return self.how

    __eq__ = __getitem__

    def __hash__(self):
        return 1


class OwnMissing(dict):
    def __missing__(self, key):
        return self.how

    __eq__ = __missing__

    def __hash__(self):
        return 1


def of_own(how):
    made = OwnMissing()
    made.how = how
    made[made] = 5
    return made


class Adding:
    def __init__(self, n):
        self.n = n

    def __add__(self, other):
        return self.n + other

    def __lt__(self, other):
        return self.n / other


class Counted(float):
    def __init__(self, of):
        self.count = 1


class Multiplied(list):
    def __mul__(self, other):
        return 5

    def __lt__(self, other):
        return False


class Answering:
    """Whose `__eq__` answers `how`, whatever else its class is, and so does `*`."""

    def __init__(self, how, *items):
        super().__init__(*items)
        self.how = how

    def __eq__(self, other):
        return self.how

    def __hash__(self):
        return 1

    def __mul__(self, other):
        return self.how


class AnsweringList(Answering, list):
    pass


class AnsweringSet(Answering, set):
    __hash__ = Answering.__hash__


class AnsweringQueue(Answering, collections.deque):
    pass


class AnsweringDict(Answering, dict):
    __hash__ = Answering.__hash__


def updated(items, made):
    made |= items
    return made


def as_any(method):
    """As decorators are."""
    @functools.wraps(method)
    def call(*arguments):
        return method(*arguments)

    return call


class Vector:
    def __init__(self, n):
        self.n = n

    @as_any
    def __add__(self, other):
        return self.n + other

    def __sub__(self, other):
        other = (lambda: other)() + 1  # a cell
        return self.n - other

    def __rmul__(self, other):
        return self.n * other

    def __gt__(self, other):
        return self.n * 3

    def __getitem__(self, key):
        return self.n * 5 if isinstance(key, slice) else self.n * 7

    def keys(self):
        return ["a"]


class Rows(tuple):
    def __init__(self, items):
        pass


class Missed(dict):
    def __missing__(self, key):
        return 5


class Pairs:
    def __init__(self, first):
        self.first = first

    def __getitem__(self, k):
        if k > 1:
            raise IndexError
        return self.first if k == 0 else 5


class Hashed:
    def __init__(self, key):
        self.key = key

    def __hash__(self):
        return self.key

    def __eq__(self, other):
        return True


class Holder:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value

    def __lt__(self, other):
        return self.value < other.value


    def __len__(self):
        return self.value

    def __hash__(self):
        return self.value

    def __floor__(self):
        return self.value

    @property
    def half(self):
        return self.value / 2


class Real(float):
    pass


class Kept(float):
    def __init__(self, value):
        self.value = value


@functools.lru_cache
def doubled(n):
    return n * 2


def each(*values):
    yield from values


class Doubled(list):
    def __iter__(self):
        return (value * 2 for value in super().__iter__())


class Floating:
    def __init__(self, value):
        self.value = value

    def __float__(self):
        return self.value * 1.0


def begun(generator):
    next(generator)
    return generator


def thrown(function):
    try:
        return function() is None
    except TypeError:
        return True


def defaulted(by, key):
    by.setdefault(key)
    return by


def through_many(function):
    for _ in range(3):
        function = functools.partial(types.MethodType(functools.partial(lambda f, _, *given: f(*given), function), 0))
    return function


def yielded(items):
    yield from items


def stored(by, key):
    by[key] = 2
    return len(by)


def matched(cls):
    match 1:
        case cls():
            return False
    return True


def unpacked_rest(items):
    *rest, = items
    return rest


def counted(*items):
    return len(items)


def added(items, made=None):
    made = [] if made is None else made
    made += items
    return made


def put_in(items):
    made = [0, 1]
    made[:] = items
    return made


def in_place(n):
    n += 1
    n *= 2
    n //= 3
    return -n


WAYS = {
    "in_a_tuple_of_floats": lambda n: n in (17.0, 18.0),
    "in_a_list_of_floats": lambda n: n in FLOATS[17:],
    "in_a_set": lambda n: n in {17.0},
    "its_list_is_asked": lambda n: 17.0 in [n],
    "index_of_a_list": lambda n: FLOATS.index(n),
    "count_of_a_list": lambda n: [17.0].count(n),
    "generated_for_a_maximum": lambda n: max(k for k in (n, 17)) > 17,
    "generated_for_a_sum": lambda n: math.fsum(k for k in (n, 1)) == 18,
    "generated_for_a_map": lambda n: list(map(math.lgamma, (k for k in (n + 1, 2))))[0] > 33,
    "generated_for_a_filter": lambda n: len(list(filter(None, (k for k in (n - 17, 2))))) == 1,
    "generated_for_a_set": lambda n: len({*(k for k in (n, 17))}) == 1,
    "generated_for_a_dict": lambda n: 17 in dict((k, 1) for k in (n, 2)),
    "generated_for_a_text": lambda n: "".join(str(k) for k in (n, 2)) == "172",
    "generated_for_a_sort": lambda n: sorted(k for k in (n, 17.5))[0] == 17.5,
    "generated_for_what_counts": lambda n: [k for k, _ in enumerate((m for m in (1, 2)), n)][0] == 17,
    "generated_for_a_slice": lambda n: "a" * len([0] * next(k for k in (n, 2))) == "a" * 17,
    "filtered_by_it": lambda n: not list(filter(lambda k: n - 17, [1])),
    "filtered_by_it_and_spread": lambda n: not [*filter(lambda k: n - 17, [1])],
    "filtered_by_it_and_unpacked": lambda n: unpacked_rest(filter(lambda k: n - 17, [1, 2])) == [],
    "filtered_by_it_and_counted": lambda n: not list(enumerate(filter(lambda k: n - 17, [1]))),
    "filtered_by_it_and_zipped": lambda n: not tuple(zip([1], filter(lambda k: n - 17, [1]))),
    "filtered_by_it_and_gone_over": lambda n: not [pair for pair in zip(filter(lambda k: n - 17, [1]), [1])],
    "filtered_by_it_into_a_dict": lambda n: not dict(filter(lambda k: n - 17, [("a", 1)])),
    "filtered_by_it_into_arguments": lambda n: not counted(*filter(lambda k: n - 17, [1])),
    "filtered_by_it_and_added": lambda n: not added(filter(lambda k: n - 17, [1])),
    "filtered_by_it_and_put_in": lambda n: not put_in(filter(lambda k: n - 17, [1])),
    "mapped_and_filtered": lambda n: not list(filter(None, map(lambda k: n - k, [17]))),
    "mapped_and_compressed": lambda n: not list(itertools.compress([1], map(lambda k: n - k, [17]))),
    "taken_while_it_is": lambda n: not tuple(itertools.takewhile(lambda k: n - 17, [1])),
    "chained": lambda n: not list(itertools.chain(filter(lambda k: n - 17, [1]))),
    "given_by_a_filter_that_is_yielded": lambda n: not list(yielded(filter(lambda k: n - 17, [1]))),
    "given_by_a_map_that_is_yielded": lambda n: next(yielded(map(bool, map(lambda k: n - 17, [1])))) is False,
    "grouped_by_it": lambda n: len(list(itertools.groupby([0, 1], key=lambda k: (n - 17) * k))) == 1,
    "mapped_into_a_set": lambda n: len({*map(lambda k: (n - 17) * k, [0, 1])}) == 1,
    "mapped_into_keys": lambda n: len(dict(map(lambda k: ((n - 17) * k, 1), [0, 1]))) == 1,
    "mapped_into_zipped_keys": lambda n: len(dict(zip(map(lambda k: (n - 17) * k, [0, 1]), "ab"))) == 1,
    "equal_by_it": lambda n: [Equal(n - 17)] != [Equal(n - 17)],
    "equal_by_it_in_a_dict": lambda n: {Equal(n - 17): 1}.get(Equal(n - 17)) is None,
    "equal_by_it_as_a_key": lambda n: len({Equal(n - 17): 1, Equal(0): 2}) == 2,
    "equal_by_it_where_it_is_stored": lambda n: stored({Equal(n - 17): 1}, Equal(n - 17)) == 2,
    "equal_by_it_in_a_set": lambda n: len({Equal(n - 17), Equal(n - 17)}) == 2,
    "equal_by_it_in_a_tuple": lambda n: (Equal(n - 17), 1) != (Equal(n - 17), 1),
    "equal_by_it_in_a_dict_of_dicts": lambda n: len({**{Equal(n - 17): 1}, Equal(n - 17): 2}) == 2,
    "equal_by_it_in_merged_dicts": lambda n: len({**{Equal(n - 17): 1}, **{Equal(n - 17): 2}}) == 2,
    "equal_by_it_after_a_key": lambda n: len({Equal(n - 17): 1, **{Equal(n - 17): 2}}) == 2,
    "equal_by_it_in_a_merged_mapping": lambda n: len({**{Equal(n - 17): 1}, **types.MappingProxyType({Equal(n - 17): 2})}) == 2,
    "equal_by_it_in_pairs": lambda n: len(dict([(Equal(n - 17), 1), (Equal(n - 17), 2)])) == 2,
    "equal_by_it_in_pairs_of_tuples": lambda n: len(dict([((Equal(n - 17),), 1), ((Equal(n - 17),), 2)])) == 2,
    "equal_by_it_in_zipped_pairs": lambda n: len(dict(zip([Equal(n - 17), Equal(n - 17)], "ab"))) == 2,
    "equal_by_it_in_zipped_pairs_of_tuples": lambda n: len(dict(zip([(Equal(n - 17),), (Equal(n - 17),)], "ab"))) == 2,
    "equal_by_it_in_zipped_keys": lambda n: len(dict(zip({Equal(n - 17): 1, Equal(0): 2}, "ab"))) == 2,
    "equal_by_it_in_a_zipped_set": lambda n: len(dict(zip({Equal(n - 17), Equal(0)}, "ab"))) == 2,
    "equal_by_it_in_a_zipped_frozenset": lambda n: len(dict(zip(frozenset([Equal(n - 17), Equal(0)]), "ab"))) == 2,
    "equal_by_it_in_a_zipped_queue": lambda n: len(dict(zip(collections.deque([Equal(n - 17), Equal(n - 17)]), "ab"))) == 2,
    "equal_by_it_in_zipped_values": lambda n: len(dict(zip({1: Equal(n - 17), 2: Equal(n - 17)}.values(), "ab"))) == 2,
    "equal_by_it_in_frozensets": lambda n: len({frozenset([Equal(n - 17)]): 1, **{frozenset([Equal(n - 17)]): 2}}) == 2,
    "lists_less_by_it": lambda n: AnsweringList(0, [AnsweringList(n - 17, [1])]) < AnsweringList(0, [AnsweringList(n - 17, [2])]),
    "lists_compared_within_by_it": lambda n: [AnsweringList(n - 17, [1]), 1] < [AnsweringList(n - 17, [2]), 0],
    "sets_less_by_it": lambda n: not AnsweringSet(0, [AnsweringSet(n - 17)]) <= {AnsweringSet(n - 17)},
    "sets_joined_by_it": lambda n: len(AnsweringSet(0, [AnsweringSet(n - 17)]) | {AnsweringSet(n - 17)}) == 2,
    "queues_less_by_it": lambda n: AnsweringQueue(0, [AnsweringQueue(n - 17, [1])]) < AnsweringQueue(0, [AnsweringQueue(n - 17, [2])]),
    "dicts_updated_by_it": lambda n: len(updated({AnsweringDict(n - 17): 1}, AnsweringDict(0, {AnsweringDict(n - 17): 2}))) == 2,
    "filtered_by_a_method_of_the_list": lambda n: not added(filter(AnsweringList(n - 17).__mul__, [1]), AnsweringList(0)),
    "filtered_by_the_list_itself": lambda n: (lambda made: not added(filter(made.__mul__, [1]), made))(AnsweringList(n - 17)),
    "class_by_it": lambda n: matched(type("Asked", (type,), {"__instancecheck__": lambda cls, of: n - 17})("Made", (), {})),
    "hashed_in_a_summed_generator": lambda n: sum(v + len({Hashed(n - 17), 0}) for v in (1, 2)) == 5,
    "generated_for_a_summed_map": lambda n: sum(map(lambda k: k * 2, (m for m in (n, 1)))) == 36,
    "filtered_by_it_and_added_to_a_subclass": lambda n: not len(added(filter(lambda k: n - 17, [1]), Multiplied())),
    "equal_by_it_to_a_parameter": lambda n: named(**{name(n - 17): 5}) == 1,
    "equal_by_it_to_a_parameter_of_a_partial": lambda n: functools.partial(named, **{name(n - 17): 5})() == 1,
    "equal_by_it_to_a_pattern": lambda n: found({Key(n - 17): 5}) is None,
    "unequal_by_it_through_a_decorator": lambda n: (NotUnequal() != EqualByDecorator(n - 17)) is True,
    "unequal_by_it_the_other_way": lambda n: (EqualByDecorator(n - 17) != NotUnequal()) is True,
    "equal_by_it_to_the_mapping": lambda n: len({**OwnKey(n - 17)}) == 2,
    "equal_by_it_to_the_dict": lambda n: of_own(n - 17)[of_own(n - 17)] == 0,
    "equal_by_it_in_a_subclass": lambda n: Multiplied([Equal(n - 17)]) != [Equal(n - 17)],
    "equal_by_it_where_another_is_missing": lambda n: Missed({Equal(n - 17): 1})[Equal(n - 17)] == 5,
    "unequal_by_it": lambda n: (Equal(n - 17) != 1) is True,
    "pair_of_pythons_own": lambda n: len(dict([Pairs(n - 17), (0, 1)])) == 1,
    "keys_of_a_sequence_of_pythons": lambda n: len(dict(zip(Pairs(n - 17), "ab"))) == 2 and 0 in dict(zip(Pairs(n - 17), "ab")),
    "filtered_by_it_into_a_class_of_tuples": lambda n: not Rows(filter(lambda k: n - 17, [1])),
    "key_that_is_set_by_default": lambda n: len(defaulted({0: 1}, n - 17)) == 1,
    "made_by_map_of_a_class_with_an_init": lambda n: list(map(Counted, [n - 17]))[0] == 0.0,
    "through_many_partials": lambda n: through_many(max)(n - 17, 0) == 0 and n == 17,
    "order_of_sorted": lambda n: sorted([Holder(1), Holder(2)], key=operator.attrgetter("value"), reverse=n - 17)[0].value == 1,
    "percent": lambda n: "%d" % n == "17",
    "percent_of_a_tuple": lambda n: "%d %s" % (n, "a") == "17 a",
    "percent_of_a_dict": lambda n: "%(n)x" % {"n": n} == "11",
    "format": lambda n: f"{n:03d}" == "017",
    "text": lambda n: str(n).zfill(3) == "017",
    "array": lambda n: array.array("i", [n])[0] > 16,
    "struct": lambda n: struct.unpack("i", struct.pack("i", n))[0] > 16,
    "seed": lambda n: random.Random(n).randrange(1000) == random.Random(17).randrange(1000),
    "power_with_a_modulus": lambda n: pow(n, 1, 17) == 0 and n > 0,
    "mean": lambda n: statistics.mean([n, n]) > 16,
    "sum_with_a_float": lambda n: sum([0.5, n]) > 17,
    "sum_of_a_set": lambda n: sum({n + 0.25, 0.5}) > 17,
    "sum_of_a_list_class": lambda n: sum(Doubled([n, 0.5])) > 34,
    "sum_of_a_chain": lambda n: sum(itertools.chain([n], [0.5])) > 17,
    "sum_of_a_generator_that_has_begun": lambda n: sum(begun(k for k in (n, n, 0.5))) > 17,
    "sum_of_a_generator_of_others": lambda n: sum(v for v in itertools.chain(k for k in (n, 0.5))) > 17,
    "sum_of_what_objects_give": lambda n: sum(float(Floating(k)) for k in (n, 0.5)) > 17,
    "sum_of_comparisons": lambda n: sum(k > 3 for k in (n, n - 13, 1)) == 2,
    "sum_that_throws": lambda n: thrown(lambda: sum(k for k in (n, "a"))) and n > 17,
    "sum_of_tensors_and_it": lambda n: sum(k for k in (n, torch.tensor(0.5))) > 17,
    "sum_of_a_generator": lambda n: sum(v for v in (0.5, n)) > 17,
    "product_of_a_generator": lambda n: math.prod(v for v in (0.5, n)) > 8.2,
    "sum_of_a_float_generator": lambda n: math.fsum(each(n, 0.5)) > 17,
    "max_of_a_generator": lambda n: max(v for v in (n, 16.5)) == 16.5,
    "max_with_a_key": lambda n: max([n, 16.5], key=lambda v: v) > 16.6,
    "max_of_tuples": lambda n: max((16.5, "b"), (n, "a"))[1] == "a",
    "max_of_values": lambda n: max({"b": 16.5, "a": n}.values()) == 16.5,
    "max_of_none": lambda n: max([], default=n) > 16,
    "sorted": lambda n: sorted([16.5, n])[0] == 16.5,
    "sorted_generator": lambda n: sorted(v for v in (16.5, n))[0] == 16.5,
    "sorted_with_a_key": lambda n: sorted([n, 16.5], key=lambda v: v)[0] == 16.5,
    "sorted_objects": lambda n: sorted([Holder(n), Holder(16.5)])[0].value == 16.5,
    "tuples_compared": lambda n: (16.5, 0) < (n, 0),
    "lists_compared": lambda n: [16.5] < [n],
    "named_tuples_compared": lambda n: Pair(16.5, 0) < Pair(n, 0),
    "bool_plus": lambda n: TRUE + n > 17,
    "bool_times": lambda n: TRUE * n > 16,
    "bool_compared": lambda n: True < n - 16,
    "enum_compared": lambda n: Phase.LATE <= n,
    "enum_plus": lambda n: Phase.LATE + n > 33,
    "enum_equal": lambda n: Phase.LATE == n,
    "json": lambda n: json.dumps({"a": {"b": {"c": {"d": {"e": {"f": n}}}}}}).count("17"),
    "decimal": lambda n: decimal.Decimal(n) > 16,
    "slice_of_a_range": lambda n: len(list(range(40))[n:]) < 24,
    "range": lambda n: len(range(n)) > 16,
    "repeat": lambda n: len(list(itertools.repeat(0, n))) > 16,
    "text_times": lambda n: len("ab" * n) > 33,
    "shifted": lambda n: 1 << n > 2**16,
    "bits": lambda n: n.bit_length() > 4,
    "divmod": lambda n: divmod(n, 17)[0],
    "rounded": lambda n: round(n, -1) > 19,
    "float_method": lambda n: (16.5).__lt__(n),
    "unbound": lambda n: float.__mul__(0.5, n) > 8.2,
    "operator": lambda n: operator.lt(16.5, n),
    "reduced": lambda n: functools.reduce(operator.add, [0.5, n]) > 17,
    "partial": lambda n: functools.partial(operator.mul, n)(2) > 33,
    "mapped": lambda n: list(map((16.5).__lt__, [n]))[0],
    "key_of_a_dict": lambda n: {17: 1}.get(n, 0),
    "item_of_a_list": lambda n: FLOATS[n] > 16,
    "asked_for_its_index": lambda n: FLOATS[Holder(n)] > 16,
    "hash": lambda n: hash(n) > 16,
    "matched": lambda n: {True: 1, False: 0}[n > 16],
    "its_class": lambda n: type(n)(n) > 16,
    "gcd": lambda n: math.gcd(n, 17) == 17 and n > 0,
    "float_power": lambda n: 2.0 ** n > 2 ** 16.5,
    "namespace": lambda n: types.SimpleNamespace(n=n).n > 16,
    "copied": lambda n: collections.Counter({"a": n}).total() > 16,
    "attributes_summed": lambda n: sum(map(operator.attrgetter("value"), [Holder(n)])) > 16,
    "greater_by_an_operator": lambda n: operator.gt(n, 16),
    "method_by_name": lambda n: operator.methodcaller("__gt__", 16)(n),
    "same_object": lambda n: operator.is_(n, SEVENTEEN),
    "identity": lambda n: n is SEVENTEEN,
    "no_identity": lambda n: n is not SEVENTEEN,
    "in_a_set_that_is_made": lambda n: len({n, 17}) == 1,
    "in_a_set_of_all": lambda n: len({*[n], *[17]}) == 1,
    "in_a_set_comprehension": lambda n: len({k for k in (n, 17)}) == 1,
    "key_of_a_dict_that_is_made": lambda n: {n: 1}.get(17, 0),
    "key_of_a_dict_comprehension": lambda n: {k: 1 for k in [n]}.get(17, 0),
    "cached": lambda n: doubled(n) > 33,
    "start_of_an_enumeration": lambda n: next(enumerate("a", n))[0] > 16,
    "filtered": lambda n: len(list(filter(lambda k: k - 17, [n]))) == 0,
    "filtered_one_by_one": lambda n: sum(1 for _ in filter(lambda k: k - 17, [n])) == 0,
    "taken_while": lambda n: len(list(itertools.takewhile(lambda k: k - 17, [n]))) == 0,
    "mapped_and_summed": lambda n: sum(map(lambda k: k * 2, [n])) > 33,
    "mapped_into_a_made_set": lambda n: len(set(map(lambda k: k + 1, [n, 17]))) == 1,
    "accumulated": lambda n: list(itertools.accumulate([n, 2], lambda a, b: a * b))[-1] > 33,
    "reduced_by_python": lambda n: functools.reduce(lambda a, b: a + b, [n, 1]) > 17,
    "compared_by_a_function": lambda n: sorted([n, 16.5], key=functools.cmp_to_key(lambda a, b: a - b))[0] == 16.5,
    "class_of_float": lambda n: Real(n) * 2 > 33,
    "class_of_float_with_init": lambda n: Kept(n) * 2 > 33,
    "length_of_an_object": lambda n: len(Holder(n)) > 16,
    "truth_of_an_object": lambda n: bool(Holder(n - 17 if n > 17 else n)),
    "hash_of_an_object": lambda n: hash(Holder(n)) == 17,
    "copied_by_pickle": lambda n: pickle.loads(pickle.dumps(Holder(n))).value > 16,
    "named_tuple_replaced": lambda n: Pair(0, 0)._replace(a=n) > (16, 0),
    "inherited_conversion": lambda n: math.floor(Holder(n)) > 16,
    "parts_of_a_complex": lambda n: abs(complex(n, 1)) > 16.5,
    "object_array": lambda n: numpy.array([n], dtype=object)[0] > 16,
    "keys_of_pairs": lambda n: len(dict([(n, 1), (17, 2)])) == 1,
    "keys_zipped": lambda n: len(dict(zip([n, 17], "ab"))) == 1,
    "keys_of_a_generator": lambda n: len(dict((k, 1) for k in (n, 17))) == 1,
    "far_inside_an_array": lambda n: numpy.array([[[[[[[[[[[[n]]]]]]]]]]]]).max() > 16,
    "far_inside_a_text": lambda n: "17" in repr([[[[[[[[[[[[n]]]]]]]]]]]]),
    "finite": lambda n: math.isfinite(n * 1e307),
    "infinite": lambda n: math.isinf(n * -1e307),
    "no_number": lambda n: math.isnan(n * 1e307 - n * 1e307),
    "out_of_a_domain": lambda n: in_domain(math.log2, 17 - n) or in_domain(math.log1p, 16 - n),
    "out_of_range": lambda n: in_domain(math.cosh, n * 45) or in_domain(math.expm1, n * 45),
    "array_compared": lambda n: bool((numpy.array([16.5]) < n).all()),
}


def unpacked(generator):
    first, *others = generator
    return first + others[-1]


@contextlib.contextmanager
def giving(n):
    yield n + 1


def managed(n):
    with giving(n) as given:
        return given * 2


class Generated:
    def __init__(self, value):
        self.value = value

    def __iter__(self):
        yield self.value


# what keeps or hands on a number leaves it followed: no value of its own is held to
HANDED_ON = {
    "list": lambda n: [n, 1][0],
    "zipped": lambda n: [a * b for a, b in zip([n], [2])][0],
    "enumerated": lambda n: [a for _, a in enumerate([n])][0],
    "reversed": lambda n: list(reversed([n, 2]))[1],
    "dict_zipped": lambda n: dict(zip("a", [n]))["a"],
    "items_of_a_dict": lambda n: {k: v * 2 for k, v in {"a": n}.items()}["a"],
    "popped": lambda n: {"a": n}.pop("a"),
    "merged": lambda n: ({"a": 1} | {"a": n})["a"],
    "concatenated": lambda n: ([1] + [n])[1],
    "named_tuple": lambda n: Pair(n, 1).a,
    "attribute": lambda n: Holder(n).value,
    "property": lambda n: Holder(n).half,
    "partial": lambda n: functools.partial(lambda a, b: a * b, n)(3),
    "mapped": lambda n: [*map(lambda k: k * 3, [n])][0],
    "yielded_from_a_list": lambda n: list(yielded([n, 2]))[0] * 3,
    "yielded_from_a_generator": lambda n: list(yielded(k * 2 for k in (n, 1)))[0],
    "item_of_an_own_class": lambda n: Pairs(n)[0] * 2,
    "operator_of_an_own_class": lambda n: Adding(n) + 1 - (Adding(n) < 2),
    "operators_of_many_kinds": lambda n: (Vector(n) + 1) * 0.1 + (Vector(n) - 2) + 3 * Vector(n) + (Vector(n) > 1),
    "operator_the_other_way": lambda n: 1 < Vector(n),
    "slice_of_an_own_class": lambda n: Vector(n)[1:2] + Vector(n)[1],
    "spread_of_an_own_mapping": lambda n: {**Vector(n), "b": 1}["a"],
    "given_by_an_own_mapping": lambda n: (lambda a: a + 1)(**Vector(n)),
    "mapped_twice_and_zipped": lambda n: [*zip(map(lambda k: k + 1, map(lambda k: k * 3, [n])), "a")][0][0],
    "mapped_into_values": lambda n: dict(zip("a", map(lambda k: k * 3, [n])))["a"],
    "mapped_into_arguments": lambda n: (lambda a: a + 1)(*map(lambda k: k * 3, [n])),
    "attribute_getter": lambda n: operator.attrgetter("value")(Holder(n)),
    "default": lambda n: (lambda a=n: a + 1)(),
    "spread": lambda n: (lambda *a, **k: a[0] + k["b"])(*[n], **{"b": n}),
    "generated": lambda n: [k * 2 for k in (m + 1 for m in [n])][0],
    "generated_next": lambda n: next(k for k in (1, n, 2) if k != 1),
    "generated_tuple": lambda n: tuple(k + 1 for k in (n, 2))[0],
    "generated_unpacked": lambda n: unpacked(k * 2 for k in (n, 2, n)),
    "generated_list": lambda n: [*(k for k in (n, 2))][0] + list(k for k in (1, n))[1],
    "generated_zipped": lambda n: [a * b for a, b in zip((k for k in (n, 2)), (k for k in (3, n)))][0],
    "generated_enumerated": lambda n: [i + k for i, k in enumerate(m for m in (n, 2))][0],
    "generated_by_a_class": lambda n: [k for k in Generated(n)][0],
    "generated_for_a_with": lambda n: managed(n),
    "summed": lambda n: sum([n / 7, 0.1, 0.2, n / 3]),
    "summed_ints": lambda n: sum((n, 2, n, True)),
    "summed_ints_before_floats": lambda n: sum([n, 3, 0.1, n / 7, 2, 0.3, n]),
    "summed_from_a_start": lambda n: sum([n / 7, 0.1], 0.3 * n),
    "summed_large_and_small": lambda n: sum([1e16, n / 7, -1e16, n]),
    "summed_values": lambda n: sum({"a": n / 7, "b": 0.1}.values()),
    "summed_generator": lambda n: sum(k / 7 for k in (n, 1, n)),
    "summed_generator_from_a_start": lambda n: sum((k / 7 for k in (n, 1, n)), n * 0.1),
    "summed_map": lambda n: sum(map(lambda k: k / 3, (n, 0.1, n))),
    "summed_sums": lambda n: sum(sum(v / 7 for v in (k, 0.1)) for k in (n, 2, n)),
    "summed_some": lambda n: sum(k for k in (n / 7, -1, 0.1, n / 9) if k >= 0),
    "limited": lambda n: min(max(n, 5), 20),
    "limited_as_float": lambda n: min(max(float(n), 5.0), 20.0),
    "cosine": lambda n: 0.5 * (1 + math.cos(math.pi * n / 40)),
    "square_root": lambda n: math.sqrt(n),
    "logarithms": lambda n: math.log2(n + 2) * math.log10(n + 2) - math.log1p(n / 7),
    "hyperbolic": lambda n: math.tanh(n / 9) + math.sinh(n / 9) - math.cosh(n / 9),
    "trigonometric": lambda n: math.tan(n) + math.atan(n) + math.expm1(n / 11),
    "found_finite": lambda n: n / 3 if math.isfinite(n) and not math.isnan(n / 5) and not math.isinf(n) else 7,
    "found_finite_by_numpy": lambda n: n / 3 if numpy.isfinite(n * 1e307) and not numpy.isnan(n / 5) and not numpy.isinf(n) else 7,
    "operators": lambda n: operator.add(n, 1) * operator.truediv(operator.mul(n, 3), 7) - operator.pow(2.0, operator.sub(n, 20)),
    "compared_by_operators": lambda n: n + operator.lt(n, -1) * operator.mod(n, 3) + operator.floordiv(n, 2),
    "power": lambda n: 0.99 ** n,
    "power_of_math": lambda n: 1 - math.pow(0.9, n + 1),
    "power_of_it": lambda n: math.pow(n + 1, 0.5) + math.pow(n + 1, 2),
    "in_place": lambda n: in_place(n),
    "class": lambda n: isinstance(n, int) and type(n) is int and n + 1,
    "abstract_class": lambda n: isinstance(n, numbers.Real) and not isinstance(n, (collections.abc.Sequence, set)) and n + 1,
    "class_of_it": lambda n: issubclass(type(n), numbers.Number) and n + 1,
}


PLACES = ["argument", "inside", "attribute"]


def in_domain(function, number):
    try:
        return function(number) is not None
    except (ValueError, OverflowError):
        return False


def play(compute, where, wrap):
    """What a step makes of each number, which it finds in a place, and the step."""
    held = types.SimpleNamespace(n=0)
    steps = {"argument": lambda x, n: x * compute(n), "inside": lambda x, given: x * compute(given["of"][1]),
             "attribute": lambda x: x * compute(held.n)}
    given = {"argument": lambda: (held.n,), "inside": lambda: ({"of": [0, held.n]},), "attribute": tuple}
    step = wrap(steps[where])
    seen = []
    for held.n in range(CALLS):
        seen.append(step(torch.ones(2), *given[where]()).tolist())
    return seen, step


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("way", WAYS)
def test_decides_as_eager_does(way, where):
    def decide(n):
        return 2 if WAYS[way](n) else 3

    expected, _ = play(decide, where, lambda step: step)
    assert len({tuple(values) for values in expected}) == 2, "the number decides"
    seen, step = play(decide, where, lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    assert seen == expected, step.explain()


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("way", HANDED_ON)
def test_what_hands_a_number_on_leaves_it_followed(way, where):
    expected, _ = play(HANDED_ON[way], where, lambda step: step)
    seen, step = play(HANDED_ON[way], where, lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    assert seen == expected, step.explain()
    assert step.stats["replayed"] > CALLS / 2, step.explain()


def test_a_number_that_needs_a_plan_for_each_value_is_refused_with_its_line():
    known = {0.5: 1}
    held = types.SimpleNamespace(rate=1.0)

    def train(x):
        loss = x * held.rate
        return loss + (0 if known.get(held.rate) is None else 1)  # the line

    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for _ in range(60):
        held.rate *= 0.97
        assert step(torch.ones(2)).tolist() == train(torch.ones(2)).tolist()
    refusal, = step.stats["refusals"]
    lines = pathlib.Path(__file__).read_text().splitlines()
    assert refusal["code"] == "scalar_varies" and "`held.rate` went" in refusal["reason"], refusal
    assert lines[refusal["line"] - 1].endswith("# the line"), refusal
    assert step.stats["recorded"] < 25, step.explain()


POWERS = [4.5, 3.5, 1.5, 2.5, 5.5, 2.0, 1.0, 0.0, 0.5, 3.0, -1.0, math.inf]
TURNS = {
    "pow": lambda x, f: x.abs().pow(f),
    "pow_of_zero": lambda x, f: (x * torch.tensor([0.0, 1.0, 1.0])).pow(f),
    "norm": lambda x, f: x.norm(p=f),
    "vector_norm": lambda x, f: torch.linalg.vector_norm(x, f, dim=0),
    "leaky_relu": lambda x, f: torch.nn.functional.leaky_relu(x, f),
    "smooth": lambda x, f: torch.nn.functional.smooth_l1_loss(x, x.detach().flip(0) * 2, beta=abs(f)),
}


@pytest.mark.parametrize("turn", TURNS)
def test_a_number_at_which_torch_turns_is_proved_there(turn):
    def turned(wrap):
        def train(x, f):
            x = x.detach().requires_grad_()
            loss = TURNS[turn](x, f).sum()
            return loss.detach(), torch.autograd.grad(loss, x, allow_unused=True, materialize_grads=True)[0]
        step = wrap(train)
        made = [torch.randn(2, 3, generator=torch.Generator().manual_seed(i)) for i in range(4 * len(POWERS))]
        return [[t.numpy().tobytes() for t in step(x, POWERS[i // 4])] for i, x in enumerate(made)], step

    expected, _ = turned(lambda step: step)
    seen, step = turned(lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    assert seen == expected, step.explain()
    assert step.stats["replayed"] > 0, step.explain()


LOOKED_AT_BY_C = {
    "sorted": lambda v: sorted([v, 5.0])[0],
    "min by key": lambda v: min([v, 5.0], key=float),
    "reduce": lambda v: functools.reduce(min, [v, 5.0]),
    "fmod": lambda v: math.fmod(v, 5.0),
    "text": lambda v: float(str(v)),
    "get": lambda v: {3.0: 3.0}.get(v, 2.0),
    "clip": lambda v: float(numpy.clip(v, 0.0, 5.0)),
    "decimal": lambda v: v if decimal.Decimal(v) < 5 else 5.0,
}
ENTERS = {
    "an op": lambda x, holder, number: x * number,
    "the result": lambda x, holder, number: (x, number),
    "an attribute": lambda x, holder, number: setattr(holder, "kept", number),
}
DECIDE = {
    "the number": lambda v, model: v > 10,
    "a flag": lambda v, model: model.training,
}


@pytest.mark.parametrize("decide", DECIDE.values(), ids=DECIDE)
@pytest.mark.parametrize("enters", ENTERS.values(), ids=ENTERS)
@pytest.mark.parametrize("function", LOOKED_AT_BY_C.values(), ids=LOOKED_AT_BY_C)
def test_one_branch_gives_what_it_has_read_to_c_and_the_other_does_not(function, enters, decide):
    """What one branch may do for any number that is read, the other does for those alone that it was recorded with."""
    def calls(wrap):
        source, model, holder = torch.tensor(0.0), torch.nn.Dropout(0.0), types.SimpleNamespace(kept=None)

        def step(x):
            v = source.item()
            return enters(x, holder, v if decide(v, model) else function(v))
        step, outcomes = wrap(step), []
        for v in [20.0, 21.0, 22.0, 3.0, 3.5, 4.0, 4.25, 7.0, 7.5, 23.0, 24.0, 8.0]:
            source.fill_(v)
            model.train(v > 10)
            outcomes.append((step(torch.ones(1)), holder.kept))
        return step, outcomes

    _, eager = calls(lambda step: step)
    step, replayed = calls(lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    assert replayed == eager, step.explain()
    assert step.stats["replayed"] >= 1, step.explain()


DROPS = {
    "dropout": lambda x, p: torch.nn.functional.dropout(x, p),
    "dropout_": lambda x, p: torch.nn.functional.dropout(x * 1, p, inplace=True),
    "dropout2d": lambda x, p: torch.nn.functional.dropout2d(x.expand(1, 2, -1, -1), p),
    "twice": lambda x, p: torch.nn.functional.dropout(x, p) + torch.nn.functional.dropout(x, 1 - p),
    "attention": lambda x, p: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=p),
}
ANNEALED = {
    "annealed": ([0.5 * 0.93**i for i in range(24)], 15),
    "at a half": ([0.5] * 5 + [0.4, 0.3, 0.2, 0.1, 0.6, 0.5, 0.4], 3),
    "to its ends": ([0.3, 0.2, 0.1, 0.25, 0.22] + 6 * [0.0] + [0.4, 0.1] + 6 * [1.0] + [0.15, 0.35, 0.0, 0.7], 3),
}


@pytest.mark.parametrize("rates, replays", ANNEALED.values(), ids=ANNEALED)
@pytest.mark.parametrize("drop", DROPS.values(), ids=DROPS)
def test_a_rate_of_dropout_moves(drop, rates, replays):
    """torch draws by `1 - p`, and does something else for 0 and 1."""
    def calls(wrap):
        torch.manual_seed(3)
        held = types.SimpleNamespace(rate=0.0)

        def step(x):
            x = x.detach().requires_grad_()
            dropped = drop(x, held.rate)
            dropped.sum().backward()
            return dropped.detach(), x.grad
        step, outcomes = wrap(step), []
        for i, held.rate in enumerate(rates):
            x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
            outcomes.append([t.numpy().tobytes() for t in (*step(x), torch.random.get_rng_state())])
        return step, outcomes

    _, eager = calls(lambda step: step)
    step, replayed = calls(lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    assert replayed == eager, step.explain()
    assert step.stats["replayed"] >= replays, step.explain()


def test_a_rate_of_a_dropout_module_moves():
    def calls(wrap):
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
        step, outcomes = wrap(lambda x: model(x).detach()), []
        for i in range(CALLS):
            model[1].p = 0.5 * 0.9**i
            outcomes.append(step(torch.full((2, 3), float(i))).tolist())
        return step, outcomes

    _, eager = calls(lambda step: step)
    step, replayed = calls(lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    assert replayed == eager, step.explain()
    assert step.stats["replayed"] >= 20, step.explain()
