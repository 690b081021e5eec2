"""Values in what code of C holds, and values that change by being read.

$vs is the list of the values that a use may take, $long one that is longer than the program and changes late.
"""
from .rows import Home

HELD = [
    Home("partial", "$n = functools.partial(lambda value: value, $v)", ("$n()", "$n.args[0]"),
         ("$n = functools.partial(lambda value: value, $v)",)),
    Home("partial_keywords", "$n = functools.partial(lambda value: value, value=$v)", ("$n()", "$n.keywords['value']"),
         ("$n.keywords['value'] = $v", "$n = functools.partial(lambda value: value, value=$v)")),
    Home("partial_of_a_container", "held_$n = {'value': $v}\n$n = functools.partial(lambda held: held['value'], held_$n)",
         ("$n()",), ("held_$n['value'] = $v",)),
    Home("dictionary_view", "held_$n = {'value': $v}\n$n = held_$n.values()", ("[*$n][0]", "next(iter($n))"),
         ("held_$n['value'] = $v",)),
    Home("item_getter", "held_$n = {'value': $v}\n$n = operator.itemgetter('value')", ("$n(held_$n)",), ("held_$n['value'] = $v",)),
    Home("chain_map", "held_$n = {'value': $v}\n$n = collections.ChainMap({}, held_$n)", ("$n['value']",),
         ("held_$n['value'] = $v", "$n['value'] = $v")),
    Home("user_dict", "$n = collections.UserDict(value=$v)", ("$n['value']", "$n.get('value')"), ("$n['value'] = $v",)),
    Home("mapping_proxy", "held_$n = {'value': $v}\n$n = types.MappingProxyType(held_$n)", ("$n['value']", "$n.get('value')"),
         ("held_$n['value'] = $v",)),
    Home("bound_method_of_c", "held_$n = {'value': $v}\n$n = held_$n.get", ("$n('value')",), ("held_$n['value'] = $v",)),
    Home("cached_function", "held_$n = {'value': $v}\n@functools.lru_cache(None)\ndef $n():\n    return held_$n['value']",
         ("$n()",), ("held_$n['value'] = $v\n$n.cache_clear()",)),
    Home("single_dispatch", "held_$n = {'value': $v}\n@functools.singledispatch\ndef $n(given):\n    return held_$n['value']",
         ("$n(0)",), ("held_$n['value'] = $v", "$n.register(int, lambda given: $v)")),
    Home("torch_decorated", "class Reader_$n:\n    def __call__(self):\n        return self.rate\n"
         "held_$n = Reader_$n()\nheld_$n.rate = $v\n$n = torch.no_grad()(held_$n)", ("$n()",), ("held_$n.rate = $v",)),
    Home("context_manager", "held_$n = {'value': $v}\n@contextlib.contextmanager\ndef $n():\n    yield held_$n['value']\n"
         "def read_$n():\n    with $n() as value:\n        return value", ("read_$n()",), ("held_$n['value'] = $v",)),
]

MOVING = [
    Home("iterator", "$n = iter($long)", ("next($n)",), ()),
    Home("zip_iterator", "$n = zip($long)", ("next($n)[0]",), ()),
    Home("cycle", "$n = itertools.cycle($vs)", ("next($n)",), ()),
    Home("generator", "def make_$n():\n    for value in $long:\n        yield value\n$n = make_$n()", ("next($n)",), ()),
    Home("random_choice", "$n = random.Random(3)", ("$n.choice($vs)",), ()),
    Home("random_of_a_class", "class $n:\n    rng = random.Random(3)\n    def draw(self):\n        return $vs[self.rng.randrange(2)]",
         ("$n().draw()",), ()),
    Home("numpy_random", "$n = np.random.default_rng(3)", ("$vs[int($n.integers(2))]",), ()),
    Home("popped", "$n = list(reversed($long))", ("$n.pop()",), ()),
]
