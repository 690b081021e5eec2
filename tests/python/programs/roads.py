"""What happens to a value on its way to its use. A road leads to a value that the use may take as well."""
from .rows import Road

_PASS = "def pass_$n(value):\n    return value"

THROUGH_PYTHON = [
    Road("helper", "any", "pass_$n($r)", _PASS),
    Road("keyword_helper", "any", "pass_$n(value=$r)", _PASS),
    Road("star_helper", "any", "pass_$n(*[$r])", _PASS),
    Road("lambda", "any", "(lambda value: value)($r)"),
    Road("decorated", "any", "pass_$n($r)", "def decorate_$n(function):\n    @functools.wraps(function)\n    def run(*args, **kwargs):\n"
         "        return function(*args, **kwargs)\n    return run\n@decorate_$n\n" + _PASS),
    Road("nested", "any", "outer_$n($r)", "def outer_$n(value):\n    def inner():\n        return value\n    return inner()"),
    Road("deep_calls", "any", "a_$n($r)", "def a_$n(v): return b_$n(v)\ndef b_$n(v): return c_$n(v)\ndef c_$n(v): return d_$n(v)\n"
         "def d_$n(v): return e_$n(v)\ndef e_$n(v): return f_$n(v)\ndef f_$n(v): return v"),
    Road("recursion", "any", "down_$n($r, 3)", "def down_$n(value, depth):\n    return down_$n(value, depth - 1) if depth else value"),
    Road("generator", "any", "next(made_$n($r))", "def made_$n(value):\n    yield value"),
    Road("comprehension", "any", "[k for k in [$r]][0]"),
    Road("walrus", "any", "(kept_$n := $r)"),
    Road("conditional", "any", "($r if True else None)"),
    Road("finally", "any", "tried_$n($r)", "def tried_$n(value):\n    try:\n        raise KeyError(value)\n    except KeyError as error:\n"
         "        return error.args[0]"),
    Road("own_object", "any", "Own_$n($r).read", "class Own_$n:\n    def __init__(self, value):\n        self.value = value\n"
         "    @property\n    def read(self):\n        return self.value"),
    Road("static", "any", "Own_$n.read($r)", "class Own_$n:\n    @staticmethod\n    def read(value):\n        return value"),
    Road("super", "any", "Own_$n().read($r)", "class Base_$n:\n    def read(self, value):\n        return value\n"
         "class Own_$n(Base_$n):\n    def read(self, value):\n        return super().read(value)"),
    Road("match", "int float bool str", "matched_$n($r)", "def matched_$n(value):\n    match value:\n        case int() | float() | str():\n"
         "            return value\n        case _:\n            return None"),
    Road("with", "any", "within_$n($r)", "def within_$n(value):\n    with contextlib.nullcontext(value) as kept:\n        return kept"),
]

THROUGH_C = [
    Road("map", "any", "list(map(lambda value: value, [$r]))[0]"),
    Road("sorted", "int float", "sorted([(1, 99), (0, $r)])[0][1]"),
    Road("sorted_key", "any", "sorted([$r], key=lambda value: str(value))[0]"),
    Road("reduce", "any", "functools.reduce(lambda one, other: other, [0, $r])"),
    Road("partial", "any", "functools.partial(lambda value: value, $r)()"),
    Road("dict_get", "any", "{'k': $r}.get('k')"),
    Road("namespace", "any", "types.SimpleNamespace(kept=$r).kept"),
    Road("attrgetter", "any", "operator.attrgetter('kept')(types.SimpleNamespace(kept=$r))"),
    Road("copied", "int float bool str", "copy.deepcopy([$r])[0]"),
    Road("pickled", "int float bool str", "pickle.loads(pickle.dumps($r))"),
    Road("maximum", "int float", "max($r, 0)"),
    Road("minimum", "int float", "min($r, 1000)"),
    Road("sum", "int float", "sum([$r])"),
    Road("absolute", "int float", "abs($r)"),
    Road("deque", "any", "collections.deque([$r]).pop()"),
    Road("table", "int float bool str", "{value: value for value in $vs}[$r]"),
    Road("index_of", "int float bool str", "$vs[$vs.index($r)]"),
    Road("literal", "int float bool str", "eval(repr($r))"),
]

NUMBERS = [
    Road("float", "float", "float($r)"),
    Road("int", "int", "int($r)"),
    Road("bool", "bool", "bool($r)"),
    Road("not_not", "bool", "(not (not $r))"),
    Road("comparison", "bool", "($r == True)"),
    Road("identity", "bool", "($r is True)"),
    Road("str", "str", "str($r)"),
    Road("joined", "str", "''.join(list($r))"),
    Road("f_string", "float", "text_$n($r)", "def text_$n(value):\n    return float(f'{value}')"),
    Road("percent", "float", "float('%.17g' % ($r,))"),
    Road("format", "float", "float('{:.17g}'.format($r))"),
    Road("json", "int float bool str", "json.loads(json.dumps($r))"),
    Road("packed", "float", "struct.unpack('d', struct.pack('d', $r))[0]"),
    Road("decimal", "float", "float(decimal.Decimal($r))"),
    Road("hexadecimal", "float", "float.fromhex(float($r).hex())"),
    Road("numpy", "float", "float(np.asarray($r))"),
    Road("numpy_sum", "float", "np.add($r, 0.0).item()"),
    Road("tensor", "float", "torch.tensor($r, dtype=torch.float64).item()"),
    Road("int_tensor", "int", "torch.tensor($r).item()"),
    Road("twice_half", "float", "($r * 2 / 2)"),
    Road("one_minus", "float", "(1.0 - (1.0 - $r))"),
    Road("reflected", "float", "(1.0 / (1.0 / $r))"),
    Road("square_root", "float", "math.sqrt($r) ** 2"),
    Road("int_root", "int", "round(math.sqrt($r * $r))"),
    Road("logarithm", "float", "math.exp(math.log($r))"),
    Road("fsum", "float", "math.fsum([$r])"),
    Road("rounded", "float", "round($r, 3)"),
    Road("floored", "float", "($r // 0.01 * 0.01 + 0.005)"),
    Road("branched", "float", "($r if 10.0 > $r else 10.0)"),
    Road("branched_int", "int", "($r if 10.0 > $r else 3)"),
    Road("operator", "int float", "operator.add($r, 0)"),
    Road("statistics", "float", "statistics.fmean([$r])"),
    Road("modulo", "int", "$r % 16"),
    Road("bits", "int", "($r & 15)"),
    Road("range_index", "int", "range(16)[$r]"),
    Road("text_position", "int", "'abcdefghijkl'.index('abcdefghijkl'[$r])"),
    Road("counted", "int", "sum(1 for _ in range($r))"),
    Road("times_text", "int", "len('a' * $r)"),
    Road("divmod", "int", "divmod($r, 16)[1]"),
    Road("ordinal", "int", "ord(chr($r + 65)) - 65"),
    Road("loop", "int", "looped_$n($r)", "def looped_$n(count):\n    total = 0\n    while total < count:\n        total += 1\n    return total"),
]
