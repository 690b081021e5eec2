"""Values in attributes of objects and classes."""
from .rows import Home

_PLAIN = "class Kept_$n:\n    pass\n$n = Kept_$n()"

OBJECTS = [
    Home("attribute", _PLAIN + "\n$n.rate = $v",
         ("$n.rate", "$n.rate", "getattr($n, 'rate')", "getattr($n, 'ra' + 'te')", "getattr($n, '{}te'.format('ra'), None)",
          "vars($n)['rate']", "$n.__dict__['rate']", "operator.attrgetter('rate')($n)", "$n.__getattribute__('rate')",
          "object.__getattribute__($n, 'rate')", "functools.reduce(getattr, ['rate'], $n)"),
         ("$n.rate = $v", "setattr($n, 'rate', $v)", "$n.__dict__['rate'] = $v", "vars($n).update(rate=$v)"),
         absent=_PLAIN, delete="del $n.rate",
         late_reads=("getattr($n, 'rate', $d)", "($n.rate if hasattr($n, 'rate') else $d)", "vars($n).get('rate', $d)")),
    Home("attribute_of_self", "$me.rate_$n = $v", ("$me.rate_$n", "getattr($me, 'rate_$n')", "vars($me)['rate_$n']"),
         ("$me.rate_$n = $v",), absent="pass", delete="del $me.rate_$n",
         late_reads=("getattr($me, 'rate_$n', $d)",)),
    Home("attribute_two_below", "$n = types.SimpleNamespace(train=types.SimpleNamespace(rate=$v))",
         ("$n.train.rate", "operator.attrgetter('train.rate')($n)", "functools.reduce(getattr, 'train.rate'.split('.'), $n)"),
         ("$n.train.rate = $v", "$n.train = types.SimpleNamespace(rate=$v)")),
    Home("attribute_far_below", "class Kept_$n:\n    def __init__(self, below):\n        self.below = below\n"
         "$n = Kept_$n(Kept_$n(Kept_$n(Kept_$n(Kept_$n(Kept_$n(Kept_$n($v)))))))",
         ("$n.below.below.below.below.below.below.below",),
         ("$n.below.below.below.below.below.below.below = $v", "$n.below.below.below = Kept_$n(Kept_$n(Kept_$n(Kept_$n($v))))")),
    Home("seen_first_too_deep", "$n = types.SimpleNamespace(sub=types.SimpleNamespace(rate=$v))\n"
         "def read_$n():\n    a_$n()\n    return $n.sub.rate\ndef a_$n(): return b_$n()\ndef b_$n(): return c_$n()\n"
         "def c_$n(): return 1 if $n else 0", ("read_$n()",), ("$n.sub.rate = $v",)),
    Home("method_reads", "class Kept_$n:\n    def __init__(self):\n        self.rate = $v\n    def read(self):\n"
         "        return self.rate\n    def again(self):\n        return getattr(self, 'read_it'[:4])()\n$n = Kept_$n()",
         ("$n.read()", "$n.again()", "Kept_$n.read($n)", "operator.methodcaller('read')($n)"), ("$n.rate = $v",)),
    Home("method_replaced", "class Kept_$n:\n    def read(self):\n        return $v\n$n = Kept_$n()", ("$n.read()",),
         ("$n.read = lambda: $v", "Kept_$n.read = lambda self: $v", "$n.read = types.MethodType(lambda self: $v, $n)")),
    Home("method_of_base", "class Base_$n:\n    def __init__(self):\n        self.rate = $v\n    def read(self):\n"
         "        return self.rate\nclass Kept_$n(Base_$n):\n    def read(self):\n        return super().read()\n$n = Kept_$n()",
         ("$n.read()",), ("$n.rate = $v", "Base_$n.read = lambda self: $v")),
    Home("property", "class Kept_$n:\n    @property\n    def rate(self):\n        return self._rate\n    @rate.setter\n"
         "    def rate(self, value):\n        self._rate = value\n$n = Kept_$n()\n$n.rate = $v",
         ("$n.rate", "getattr($n, 'rate')", "Kept_$n.rate.fget($n)"), ("$n.rate = $v", "$n._rate = $v")),
    Home("cached_property", "class Kept_$n:\n    @functools.cached_property\n    def rate(self):\n        return $v\n"
         "$n = Kept_$n()", ("$n.rate",), ("$n.__dict__['rate'] = $v", "$n.rate = $v")),
    Home("dynamic_attribute", "class Kept_$n:\n    def __init__(self):\n        self.table = {'rate': $v}\n"
         "    def __getattr__(self, name):\n        return self.table[name]\n$n = Kept_$n()",
         ("$n.rate", "$n.table['rate']"), ("$n.table['rate'] = $v", "$n.rate = $v")),
    Home("own_item", "class Kept_$n:\n    def __init__(self):\n        self.rate = $v\n    def __getitem__(self, key):\n"
         "        return self.rate\n    def __call__(self):\n        return self.rate\n    def __iter__(self):\n"
         "        yield self.rate\n    def __enter__(self):\n        return self.rate\n    def __exit__(self, *_):\n"
         "        pass\n$n = Kept_$n()",
         ("$n[0]", "$n()", "next(iter($n))", "[*$n][0]", "list(map(lambda made: made(), [$n]))[0]"), ("$n.rate = $v",)),
    Home("descriptor", "class Field_$n:\n    def __get__(self, instance, owner):\n        return instance.kept['rate']\n"
         "class Kept_$n:\n    rate = Field_$n()\n    def __init__(self):\n        self.kept = {'rate': $v}\n$n = Kept_$n()",
         ("$n.rate",), ("$n.kept['rate'] = $v",)),
    Home("slots", "class Kept_$n:\n    __slots__ = ('rate',)\n$n = Kept_$n()\n$n.rate = $v",
         ("$n.rate", "getattr($n, 'rate')", "operator.attrgetter('rate')($n)"), ("$n.rate = $v",),
         absent="class Kept_$n:\n    __slots__ = ('rate',)\n$n = Kept_$n()", delete="del $n.rate",
         late_reads=("getattr($n, 'rate', $d)", "($n.rate if hasattr($n, 'rate') else $d)")),
    Home("slots_of_base", "class Base_$n:\n    __slots__ = ('rate',)\nclass Kept_$n(Base_$n):\n    pass\n$n = Kept_$n()\n$n.rate = $v",
         ("$n.rate",), ("$n.rate = $v",)),
    Home("dataclass", "@dataclasses.dataclass\nclass Kept_$n:\n    rate: object = None\n$n = Kept_$n($v)",
         ("$n.rate", "dataclasses.asdict($n)['rate']", "getattr($n, dataclasses.fields($n)[0].name)"),
         ("$n.rate = $v", "$n = Kept_$n($v)", "$n = dataclasses.replace($n, rate=$v)")),
    Home("dataclass_with_slots", "@dataclasses.dataclass(slots=True)\nclass Kept_$n:\n    rate: object = None\n$n = Kept_$n($v)",
         ("$n.rate",), ("$n.rate = $v", "$n = Kept_$n($v)")),
    Home("frozen_dataclass", "@dataclasses.dataclass(frozen=True)\nclass Kept_$n:\n    rate: object = None\n$n = Kept_$n($v)",
         ("$n.rate",), ("$n = dataclasses.replace($n, rate=$v)", "object.__setattr__($n, 'rate', $v)")),
    Home("named_tuple", "class Kept_$n(typing.NamedTuple):\n    rate: object\n    other: int = 0\n$n = Kept_$n($v)",
         ("$n.rate", "$n[0]", "(lambda rate, other: rate)(*$n)", "$n._asdict()['rate']"), ("$n = $n._replace(rate=$v)",)),
    Home("matched", _PLAIN + "\n$n.rate = $v\ndef read_$n():\n    match $n:\n        case Kept_$n(rate=kept):\n            return kept",
         ("read_$n()",), ("$n.rate = $v",)),
    Home("weak_reference", _PLAIN + "\n$n.rate = $v\nweak_$n = weakref.ref($n)", ("(weak_$n() or $n).rate",), ("$n.rate = $v",)),
    Home("weak_dictionary", _PLAIN + "\nweak_$n = weakref.WeakKeyDictionary({$n: $v})", ("weak_$n[$n]",), ("weak_$n[$n] = $v",)),
    Home("key_that_is_an_object", _PLAIN + "\n$n.rate = $v\ntable_$n = {$n: 1}",
         ("next(key.rate for key, count in table_$n.items())", "max((count, key.rate) for key, count in table_$n.items())[1]"), ("$n.rate = $v",), tensors=False),
    Home("made_anew", "kept_$n = {'value': $v}\nclass Made_$n:\n    def __init__(self):\n        self.rate = kept_$n['value']\n"
         "    def other(self):\n        return type(self)()\n$n = Made_$n()",
         ("$n.other().rate", "$n.__class__().rate"), ("kept_$n['value'] = $v",)),
]

CLASSES = [
    Home("class_attribute", "class $n:\n    rate = $v\n    @classmethod\n    def read(cls):\n        return cls.rate",
         ("$n.rate", "$n().rate", "$n.read()", "vars($n)['rate']", "getattr($n, 'rate')", "type($n()).rate"),
         ("$n.rate = $v", "setattr($n, 'rate', $v)"), absent="class $n:\n    pass", delete="del $n.rate",
         late_reads=("getattr($n, 'rate', $d)", "($n.rate if hasattr($n, 'rate') else $d)")),
    Home("base_class_attribute", "class Base_$n:\n    rate = $v\nclass Kept_$n(Base_$n):\n    pass\n$n = Kept_$n()",
         ("$n.rate", "Kept_$n.rate", "super(Kept_$n, $n).rate"), ("Base_$n.rate = $v",)),
    Home("instance_over_class", "class Kept_$n:\n    rate = $v\n$n = Kept_$n()", ("$n.rate",), ("$n.rate = $v", "Kept_$n.rate = $v")),
    Home("object_of_a_class", "class Kept_$n:\n    parts = [types.SimpleNamespace(rate=$v)]\n    table = {'a': parts[0]}\n$n = Kept_$n()",
         ("$n.parts[0].rate", "Kept_$n.table['a'].rate", "next(part.rate for part in $n.parts)"),
         ("Kept_$n.parts[0].rate = $v", "Kept_$n.parts[0] = Kept_$n.table['a'] = types.SimpleNamespace(rate=$v)")),
    Home("container_of_a_class", "class Kept_$n:\n    table = {'rate': $v}", ("Kept_$n.table['rate']", "Kept_$n().table.get('rate')"),
         ("Kept_$n.table['rate'] = $v",)),
    Home("metaclass_attribute", "class Meta_$n(type):\n    @property\n    def rate(cls):\n        return cls.kept\n"
         "class $n(metaclass=Meta_$n):\n    kept = $v", ("$n.rate", "$n.kept"), ("$n.kept = $v",)),
    Home("class_changed", "class One_$n:\n    rate = $v\nclass $n(One_$n):\n    pass\nheld_$n = $n()", ("held_$n.rate",),
         ("class Other(One_$n):\n    rate = $v\nheld_$n.__class__ = Other",)),
    Home("static_method", "class $n:\n    @staticmethod\n    def read():\n        return $v", ("$n.read()", "$n().read()"),
         ("$n.read = staticmethod(lambda: $v)",)),
    Home("class_closure", "def make_$n():\n    kept = $v\n    class Reader:\n        def read(self):\n            return kept\n"
         "        def write(self, value):\n            nonlocal kept\n            kept = value\n    return Reader()\n$n = make_$n()",
         ("$n.read()",), ("$n.write($v)",)),
]
