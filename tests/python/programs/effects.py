"""What a step does to the host, beside what it computes. Each is done in every call, and its traces are compared."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Effect:
    name: str
    setup: str
    text: str  # at the end of the step
    start: str = ""  # at its beginning: what reads the traces of the call before
    between: str = ""


_BOX = "class Box_$n:\n    pass\n$n = Box_$n()\n"

EFFECTS = [
    Effect("counted_attribute", _BOX + "$n.count = 0", "$n.count += 1"),
    Effect("counted_name", "$n = 0", "$n += 1"),
    Effect("counted_item", "$n = {'count': 0}", "$n['count'] += 1"),
    Effect("counted_default", "$n = collections.defaultdict(int)", "$n['count'] += 1"),
    Effect("counted_class", "class $n:\n    count = 0", "$n.count += 1"),
    Effect("counted_function", "def $n():\n    pass\n$n.count = 0", "$n.count += 1"),
    Effect("counted_object_of_a_class", _BOX + "class Registry_$n:\n    items = {'a': $n}\n$n.count = 0", "Registry_$n.items['a'].count += 1"),
    Effect("counted_object_of_a_function", _BOX + "$n.count = 0\ndef held_$n():\n    held_$n.box.count += 1\nheld_$n.box = $n", "held_$n()"),
    Effect("counted_in_a_closure", "def make_$n():\n    count = 0\n    def tick():\n        nonlocal count\n        count += 1\n        return count\n"
           "    return tick\ntick_$n = make_$n()", "tick_$n()"),
    Effect("counted_in_a_package", "import trainkit", "trainkit.Ticker.count += 1"),
    Effect("counted_and_compared", _BOX + "$n.count = 0", "$n.count += 1\nif $n.count % 4 == 0:\n    with torch.no_grad():\n        last.bias.mul_(0.9)"),
    Effect("counted_before_comparison", _BOX + "$n.count = 0", "$n.count += 1", "if $n.count % 3 == 0:\n    x = x * 2"),
    Effect("counter_object", "$n = itertools.count()", "next($n)"),
    Effect("counter_of_collections", "$n = collections.Counter()", "$n['calls'] += 1"),
    Effect("list_of_ones", "$n = []", "$n.append(1)"),
    Effect("list_of_losses", "$n = []", "$n.append(loss.item())"),
    Effect("list_of_tensors", "$n = []", "$n.append(loss.detach())"),
    Effect("bounded_deque", "$n = collections.deque(maxlen=3)", "$n.append(loss.detach())"),
    Effect("list_of_a_partial", "$n = []\ntick_$n = functools.partial(lambda kept: kept.append(1), $n)", "tick_$n()"),
    Effect("grown_and_counted", "$n = []", "$n.append(loss.item())", "if len($n) % 4 == 3:\n    x = x * 0.5"),
    Effect("grown_and_measured", "$n = []", "$n.append(1.0)\nloss = loss / len($n)", "if not $n:\n    x = x * 2", "if i == 11:\n    del $n[:-2]"),
    Effect("grown_from_the_newest", "$n = [0.5]", "$n.append(0.9 * $n[-1] + loss.item())", "x = x * (1 + $n[-1])", "if i == 11:\n    $n[-1] = 0.25"),
    Effect("grown_and_averaged", "$n = [0.1, 0.2]", "$n.append(loss.item())", "x = x * (1 + sum($n[-2:]) / 2)"),
    Effect("grown_tensors", "$n = [torch.zeros(4, 6)]", "$n.append((x * 0.5).detach())", "x = x + 0.1 * $n[-1]"),
    Effect("grown_queue", "$n = collections.deque([0.5, 0.25])", "$n.append(loss.item())\nloss = loss * $n[-2]", "x = x * len($n)"),
    Effect("grown_between", "$n = {}", "", "x = x * (1 + len($n) / 8)", "$n[i // 2] = i"),
    Effect("set_of_shapes", "$n = set()", "$n.add(tuple(x.shape))"),
    Effect("logged_number", "$n = {}", "$n['loss'] = loss.item()"),
    Effect("logged_tensor", "$n = {}", "$n['loss'] = loss.detach()"),
    Effect("kept_tensor", _BOX + "$n.last = None", "$n.last = loss.detach()"),
    Effect("kept_number", _BOX + "$n.last = None", "$n.last = loss.item()"),
    Effect("kept_text", _BOX + "$n.last = None", "$n.last = f'{loss.item():.4f}'"),
    Effect("kept_argument", _BOX + "$n.last = None", "$n.last = x"),
    Effect("carried_attribute", _BOX + "$n.state = torch.zeros(4, 6)", "$n.state = (x * 0.5).detach()", "x = x + 0.1 * $n.state"),
    Effect("carried_item", "$n = {'state': torch.zeros(4, 6)}", "$n['state'] = (x * 0.5).detach()", "x = x + 0.1 * $n['state']"),
    Effect("carried_or_none", _BOX + "$n.state = None", "$n.state = (x * 0.5).detach()", "if $n.state is not None:\n    x = x + 0.1 * $n.state"),
    Effect("carried_in_place", "$n = torch.zeros(4, 6)", "$n.copy_(x.detach() * 0.5)", "x = x + 0.1 * $n"),
    Effect("average_of_loss", "$n = torch.zeros(())", "$n.mul_(0.9).add_(loss.detach(), alpha=0.1)", "x = x * (1 + $n)"),
    Effect("python_average_of_loss", _BOX + "$n.mean = 0.0", "$n.mean = 0.9 * $n.mean + 0.1 * loss.item()", "x = x * (1 + $n.mean)"),
    Effect("best_loss", _BOX + "$n.best = 1e9", "$n.best = min($n.best, loss.item())"),
    Effect("patience", _BOX + "$n.best, $n.bad = 1e9, 0", "if loss.item() < $n.best:\n    $n.best, $n.bad = loss.item(), 0\nelse:\n    $n.bad += 1"),
    Effect("scratch", _BOX, "", "$n.scratch = x * 2\nx = $n.scratch + 1\n$n.scratch = None"),
    Effect("scratch_object", _BOX, "", "$n.view = types.SimpleNamespace(rows=4)\nx = x * $n.view.rows\ndel $n.view"),
    Effect("same_text", _BOX + "$n.mode = None", "$n.mode = 'train'"),
    Effect("toggled", _BOX + "$n.flag = False", "$n.flag = not $n.flag", "if $n.flag:\n    x = x * 0.5"),
    Effect("toggled_late", _BOX + "$n.flag = False", "$n.flag = True", "if $n.flag:\n    x = x * 0.5"),
    Effect("started_once", _BOX + "$n.ready = False", "", "if not $n.ready:\n    with torch.no_grad():\n        first.bias.copy_(x.mean(0)[:4])\n    $n.ready = True"),
    Effect("started_by_a_buffer", "$n = nn.Module()\n$n.register_buffer('ready', torch.tensor(0))", "",
           "if $n.ready.item() == 0:\n    with torch.no_grad():\n        first.bias.copy_(-x.mean(0)[:4])\n    $n.ready.fill_(1)",
           "if i == 11:\n    $n.ready.fill_(0)"),
    Effect("buffer_counted", "$n = nn.Module()\n$n.register_buffer('count', torch.tensor(0))", "$n.count += 1"),
    Effect("buffer_compared", "$n = nn.Module()\n$n.register_buffer('count', torch.tensor(0))", "$n.count += 1", "if $n.count % 4 == 3:\n    x = x * 0.5"),
    Effect("read_kept", "$n = nn.Module()\n$n.register_buffer('scale', torch.tensor(1.0))\n$n.last = None",
           "$n.scale.mul_(0.9)", "$n.last = ($n.scale + 0).item()\nx = x * $n.last"),
    Effect("replay_buffer", "$n = []", "$n.append((x.detach(), y))\nif len($n) > 4:\n    $n.pop(0)"),
    Effect("numpy_row", "$n = np.zeros(4)", "$n[0] += 1"),
    Effect("popped_and_set", "$n = {'a': 1}", "$n['a'] = $n.pop('a')"),
    Effect("module_of_a_class", "class $n:\n    net = nn.Dropout(0.5)", "", "x = $n.net(x)", "if i == 11:\n    $n.net.eval()"),
    Effect("average_model", "$n = copy.deepcopy(model)", "with torch.no_grad():\n    for p, q in zip(model.parameters(), $n.parameters()):\n"
           "        q.mul_(0.9).add_(p, alpha=0.1)"),
    Effect("global_draw", "", "", "x = x * (1 + random.random())"),
    Effect("torch_draw", "", "", "x = x * torch.rand(6)"),
    Effect("drawn_index", "", "", "x = x * x[torch.randint(0, 4, ()).item()]"),
    Effect("drawn_shift", "", "", "k = torch.randint(0, 3, (1,)).item()\nx = x * x[:, k:k + 4].sum()"),
    Effect("drawn_branch", "", "", "if torch.rand(()) < 0.2:\n    x = x * 2"),
    Effect("autocast_inside", "torch.set_autocast_dtype('cpu', torch.bfloat16)", "with torch.autocast('cpu'):\n    model(x)",
           "", "torch.set_autocast_dtype('cpu', torch.float16 if i > 11 else torch.bfloat16)"),
    Effect("transformer", "$n = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True).eval()", "with torch.no_grad():\n    loss = loss + $n(x[None]).mean()"),
    Effect("scripted", "$n = torch.jit.script(nn.Sequential(nn.Dropout(0.5)))", "", "x = $n(x)", "if i == 11:\n    $n.eval()"),
    Effect("batch_normed", "$n = nn.BatchNorm1d(6)", "", "x = $n(x)", "if i == 11:\n    $n.eval()"),
    Effect("hook_of_a_module", "", "", "", "if i == 11:\n    first.register_forward_hook(lambda module, given, out: out * 2)"),
    Effect("hook_of_a_parameter", "", "", "", "if i == 11:\n    first.weight.register_hook(lambda g: g * 2)"),
    Effect("weights_loaded", "$n = copy.deepcopy(model.state_dict())", "", "", "if i == 11:\n    model.load_state_dict($n)"),
    Effect("parameter_replaced", "", "", "", "if i == 11:\n    first.bias = nn.Parameter(torch.ones(4))"),
    Effect("parameter_frozen", "", "", "", "if i == 11:\n    first.weight.requires_grad_(False)"),
    Effect("gradients_dropped", "", "", "", "if i == 11:\n    model.zero_grad(set_to_none=True)"),
    Effect("reseeded", "", "", "x = x * torch.rand(6)", "if i % 8 == 0:\n    torch.manual_seed(i)"),
    Effect("nan", "", "if torch.isnan(loss):\n    raise FloatingPointError('loss')", ""),
    Effect("hook_on_an_argument", "", "", "x.requires_grad_()\nx = x * 1"),
    Effect("argument_written", "", "x.mul_(0.5)"),
    Effect("argument_gradient", "", "", "x.requires_grad_()"),
]
