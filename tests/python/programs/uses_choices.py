"""What ints, bools, texts, tensors and functions feed."""
from .rows import Use

_SIZES = ("2", "3", "1", "4")
_INDICES = ("3", "0", "2", "1")
_DIMS = ("0", "1")


def _int(name, text, values=_SIZES, stage="hidden", setup=""):
    return Use("int_" + name, "int", stage, text, values, setup)


def _of(kind, values):
    return lambda name, text, stage="hidden", setup="", values=values: Use(f"{kind}_{name}", kind, stage, text, values, setup)


def _found(name, text, stage="hidden"):
    """Of memory that the step finds, at a place that moves."""
    return _int("found_" + name, text, _INDICES, stage, "found_$n = torch.linspace(-1.0, 2.0, 32).reshape(8, 4)")


_bool = _of("bool", ("True", "False"))
_str = _of("str", ("'relu'", "'tanh'", "'sigmoid'"))
_tensor = _of("tensor", ("torch.tensor([1.0, 2.0, 0.5, 1.5])", "torch.tensor([0.5, 1.0, 2.0, 0.1])", "torch.tensor([3.0, 0.3, 0.2, 1.0])"))
_function = _of("function", ("torch.relu", "torch.tanh", "(lambda h: h * 0.5)"))

INTS = [
    _int("operand", "h = h * $v"),
    _int("operand_add", "h = h + $v"),
    _int("slice", "h = h * h[:, :$v].sum()"),
    _int("slice_mean", "h = h * (h[:$v].sum() / $v)"),
    _int("select", "h = h * h[$v]", _INDICES),
    _int("select_dim", "h = h * h.select(1, $v)[:, None]", _INDICES),
    _int("item", "h = h * torch.arange(4.0)[$v]", _INDICES),
    _int("item_assigned", "h = h.clone()\nh[$v] = 0.5", _INDICES),
    _int("log_probability", "h = h - torch.log(h.softmax(1)[0, $v])", _INDICES),
    _int("table", "h = h * [1.0, 1.0, 0.5, 0.25][$v]", _INDICES),
    _int("table_of_equals", "h = h * [1.0, 1.0, 0.5, 0.25][$v]", ("0", "1", "2", "3")),
    _int("dict_table", "h = h * {0: 1.0, 1: 1.0, 2: 0.5, 3: 0.25}[$v]", _INDICES),
    _int("narrow", "h = h * h.narrow(1, 0, $v).sum()"),
    _int("narrow_start", "h = h * h.narrow(1, $v, 1)", _INDICES),
    _int("split", "h = h * F.pad(h, (0, 1)).split([$v, 5 - $v], 1)[0].sum()"),
    _int("chunk", "h = h * h.chunk($v, 1)[0].sum()"),
    _int("dim", "h = h.softmax($v)", _DIMS),
    _int("sum_dim", "h = h * h.sum($v, keepdim=True)", _DIMS),
    _int("cumulative", "h = h.cumsum($v)", _DIMS),
    _int("transpose", "h = h * h.transpose($v, 1)", _DIMS),
    _int("stack", "h = torch.stack([h, h], $v).sum() + h", _DIMS),
    _int("cat", "h = h + torch.cat([h, h * 2], $v).mean()", _DIMS),
    _int("flip", "h = h.flip($v)", _DIMS),
    _int("roll", "h = h.roll($v, 1)"),
    _int("triangle", "h = h * h.tril($v).sum()"),
    _int("tensor_split", "h = h * h.tensor_split([$v], 1)[0].sum()"),
    _int("diagonal", "h = h * h.diagonal($v).sum()", ("0", "1", "2")),
    _int("view", "h = h * h.reshape($v, -1).sum(1).max()", ("2", "4", "1")),
    _int("unfold", "h = h * h.unfold(1, $v, 1).sum()"),
    _int("repeat", "h = h + h.repeat($v, 1).mean()"),
    _int("expand", "h = h + h[:1].expand($v, 4).sum()"),
    _int("top", "h = h * h.topk($v, 1).values.sum()"),
    _int("pad", "h = h + F.pad(h, (0, $v)).mean()"),
    _int("arange", "h = h + torch.arange($v).float().mean()"),
    _int("zeros", "h = h + torch.ones(int($v)).sum()"),
    _int("one_hot", "h = h + F.one_hot(torch.tensor([$v]), 5).float()[:, :4]", _INDICES),
    _int("index_tensor", "h = h * h.index_select(1, torch.tensor([$v]))", _INDICES),
    _int("scatter", "h = h.scatter(1, torch.full((4, 1), $v), 1.0)", _INDICES),
    _found("row", "h = h * found_$n[$v]"),
    _found("rows", "h = h * found_$n[$v : $v + 4]"),
    _found("rows_of_the_loop", "h = h * found_$n[$v % 4 : $v % 4 + 4].tanh()"),
    _found("column", "h = h * found_$n[:4, $v % 4][:, None]"),
    _found("element", "h = h * found_$n[$v, 1]"),
    _found("selected", "h = h * found_$n.select(0, $v).mean()"),
    _found("narrowed", "h = h * found_$n.narrow(0, $v, 4)"),
    _found("strided", "h = h * found_$n[$v : $v + 4 : 2].sum()"),
    _found("from_the_end", "h = h * found_$n[-1 - $v]"),
    _found("open_ended", "h = h * found_$n[$v:].mean()"),
    _found("row_and_all", "h = h * found_$n[$v] + found_$n.mean()"),
    _found("two_rows", "h = h * found_$n[$v] - found_$n[$v + 1] * found_$n[0]"),
    _found("written", "found_$n[$v] = h.detach()[0]"),
    _found("written_and_read", "found_$n[$v] = h.detach()[0]\nh = h * found_$n.mean()"),
    _found("added", "found_$n[$v] += h.detach().mean(0)"),
    _found("rows_written", "found_$n[$v : $v + 4] = h.detach()"),
    _found("result", "found_$n[$v : $v + 2]", stage="result"),
    _found("loss", "loss = loss * found_$n[$v].sum()", stage="loss"),
    _int("power", "h = h ** $v"),
    _int("clamp", "h = h.clamp(-$v, $v)", ("100", "90", "1")),
    _int("loop", "for k in range($v):\n    h = h * (1 + k)"),
    _int("while", "k = 0\nwhile k < $v:\n    h = h + 1\n    k += 1"),
    _int("branch", "if $v == 3:\n    h = h * 2"),
    _int("branch_modulo", "if $v % 2 == 0:\n    h = h * 2"),
    _int("branch_float", "if 2.5 > $v:\n    h = h * 2"),
    _int("truth", "if not $v:\n    h = h * 2", ("1", "0", "2")),
    _int("layers", "for layer in layers_$n[:$v]:\n    h = layer(h)", setup="layers_$n = [torch.tanh, torch.sin, torch.cos, torch.exp]"),
    _int("result", "$v", stage="result"),
    _int("result_large", "$v * 10 ** 17 + 1", stage="result"),
    _int("result_beyond_doubles", "$v", ("1311768467463790321", "9007199254740993"), stage="result"),
    _int("result_text", "'%03d' % $v", stage="result"),
    _int("result_shape", "x[:$v].clone()", stage="result"),
    _int("result_list", "list(range($v))", stage="result"),
    _int("accumulate", "loss = loss / $v", stage="loss"),
    _int("class_weight", "loss = loss * (y.argmax(1) == $v).float().add(1).mean()", _INDICES, stage="loss"),
]

BOOLS = [
    _bool("branch", "if $v:\n    h = h * 2"),
    _bool("branch_not", "if not $v:\n    h = h * 2"),
    _bool("and", "h = h * 2 if $v and True else h"),
    _bool("operand", "h = h * $v + h"),
    _bool("training", "h = F.dropout(h, 0.5, $v)"),
    _bool("keepdim", "h = h + h.sum(1, keepdim=$v).mean()"),
    _bool("gradients", "with torch.set_grad_enabled($v):\n    k = h * 0.5\nh = h + k"),
    _bool("module_mode", "drop_$n.train($v)\nh = drop_$n(h)", setup="drop_$n = nn.Dropout(0.5)"),
    _bool("requires_grad", "last.weight.requires_grad_($v)", stage="hidden"),
    _bool("target", "loss = (loss - (0.0 if $v else 1.0)).pow(2)", stage="loss"),
    _bool("detached", "loss = loss + (out.detach() if $v else out).mean()", stage="loss"),
    _bool("skipped", "if $v:\n    for p in model.parameters():\n        p.grad.zero_()", stage="gradient"),
    _bool("result", "$v", stage="result"),
    _bool("result_text", "f'{$v}'", stage="result"),
    _bool("result_kind", "(x if $v else [x])", stage="result"),
    _bool("raised", "if not $v:\n    raise RuntimeError('stopped')"),
]

TEXTS = [
    _str("activation", "h = getattr(torch, $v)(h)"),
    _str("table", "h = {'relu': F.relu, 'tanh': torch.tanh, 'sigmoid': torch.sigmoid}[$v](h)"),
    _str("branch", "if $v == 'relu':\n    h = h.relu()"),
    _str("match", "match $v:\n    case 'relu':\n        h = h.relu()\n    case 'tanh':\n        h = h.tanh()\n    case _:\n        h = h * 2"),
    _str("starts", "h = h * 2 if $v.startswith('re') else h"),
    _str("inside", "h = h * 2 if 'ta' in $v else h"),
    _str("length", "h = h * len($v)"),
    _str("gelu", "h = F.gelu(h, approximate=$v)", values=("'none'", "'tanh'")),
    _str("reduction", "loss = loss + F.mse_loss(out, y, reduction=$v)", stage="loss", values=("'mean'", "'sum'")),
    _str("method", "h = getattr(Losses_$n(), 'act_' + $v)(h)",
         setup="class Losses_$n:\n    def act_relu(self, h):\n        return h.relu()\n    def act_tanh(self, h):\n        return h * 0.3\n"
         "    def act_sigmoid(self, h):\n        return h.sigmoid()"),
    _str("result", "$v", stage="result"),
    _str("result_key", "{$v: x}", stage="result"),
]

TENSORS = [
    _tensor("multiply", "h = h * $v"),
    _tensor("add", "h = $v + h"),
    _tensor("matmul", "h = h * (h @ $v)[:, None]"),
    _tensor("compared", "h = torch.where(h > $v, h, h * 0.5)"),
    _tensor("reduced", "h = h * $v.mean()"),
    _tensor("read", "h = h * $v.max().item()"),
    _tensor("read_list", "h = h * $v.tolist()[0]"),
    _tensor("branch", "if $v[0] > 0.7:\n    h = h * 2"),
    _tensor("index", "h = h[:, $v.argsort()]"),
    _tensor("read_index", "h = h * h[:, $v.argmax().item()][:, None]"),
    _tensor("shape", "h = h * $v.shape[0]"),
    _tensor("is_gradient", "h = h * 2 if $v.requires_grad else h"),
    _tensor("copied", "h = h * torch.empty(4).copy_($v)"),
    _tensor("result", "$v * 2", stage="result"),
    _tensor("result_alias", "$v", stage="result"),
    _tensor("loss_weight", "loss = loss + ($v * out.mean()).sum()", stage="loss"),
]

FUNCTIONS = [
    _function("called", "h = $v(h)"),
    _function("mapped", "h = list(map($v, [h]))[0]"),
    _function("compared", "h = h * 2 if $v is torch.relu else h"),
    _function("called_on_weights", "loss = loss + $v(first.weight).sum()", stage="loss"),
]
