"""What a step does to the host, beside what it computes. Each is done in every call, and its traces are compared."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Effect:
    name: str
    setup: str
    text: str  # at the end of the step
    start: str = ""  # at its beginning: what reads the traces of the call before


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
           "if $n.ready.item() == 0:\n    with torch.no_grad():\n        first.bias.copy_(-x.mean(0)[:4])\n    $n.ready.fill_(1)"),
    Effect("buffer_counted", "$n = nn.Module()\n$n.register_buffer('count', torch.tensor(0))", "$n.count += 1"),
    Effect("buffer_compared", "$n = nn.Module()\n$n.register_buffer('count', torch.tensor(0))", "$n.count += 1", "if $n.count % 4 == 3:\n    x = x * 0.5"),
    Effect("read_kept", "$n = nn.Module()\n$n.register_buffer('scale', torch.tensor(1.0))\n$n.last = None",
           "$n.scale.mul_(0.9)", "$n.last = ($n.scale + 0).item()\nx = x * $n.last"),
    Effect("replay_buffer", "$n = []", "$n.append((x.detach(), y))\nif len($n) > 4:\n    $n.pop(0)"),
    Effect("numpy_row", "$n = np.zeros(4)", "$n[0] += 1"),
    Effect("popped_and_set", "$n = {'a': 1}", "$n['a'] = $n.pop('a')"),
    Effect("argument_written", "", "x.mul_(0.5)"),
    Effect("argument_gradient", "", "", "x.requires_grad_()"),
]
