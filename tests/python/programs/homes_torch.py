"""Values with torch's objects: modules, optimizers, parameters."""
from .rows import Home

_LAYER = ("class Layer_$n(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.rate = $v\n"
          "    def forward(self):\n        return self.rate\n$n = Layer_$n()")
_BARE = "class Layer_$n(nn.Module):\n    def forward(self):\n        return getattr(self, 'rate', $d)\n$n = Layer_$n()"

TORCH = [
    Home("module_attribute", _LAYER, ("$n.rate", "$n()", "getattr($n, 'rate')", "vars($n)['rate']"),
         ("$n.rate = $v", "setattr($n, 'rate', $v)"), absent=_BARE, delete="del $n.rate",
         late_reads=("getattr($n, 'rate', $d)", "$n()", "($n.rate if hasattr($n, 'rate') else $d)")),
    Home("submodule_attribute", _LAYER + "\nholder_$n = nn.ModuleDict({'inner': nn.Sequential($n)})",
         ("holder_$n['inner'][0].rate", "holder_$n['inner'][0]()",
          "list(holder_$n.modules())[2].rate", "holder_$n.get_submodule('inner.0').rate"), ("$n.rate = $v",)),
    Home("module_container", "$n = nn.Module()\n$n._hooks_cfg = {'a': [$v]}", ("$n._hooks_cfg['a'][0]",),
         ("$n._hooks_cfg['a'][0] = $v", "$n._hooks_cfg['a'] = [$v]")),
    Home("module_class_attribute", "class Layer_$n(nn.Module):\n    rate = $v\n    parts = [types.SimpleNamespace(rate=$v)]\n"
         "    def forward(self):\n        return self.rate\n$n = Layer_$n()", ("$n.rate", "$n()", "Layer_$n.rate"),
         ("Layer_$n.rate = $v", "$n.rate = $v")),
    Home("objects_below_a_module", "class Layer_$n(nn.Module):\n    def __init__(self, cfg):\n        super().__init__()\n"
         "        self.cfg = cfg\n    def forward(self):\n        return self.cfg.model.rate\n"
         "$n = types.SimpleNamespace(net=Layer_$n(types.SimpleNamespace(model=types.SimpleNamespace(rate=$v))))",
         ("$n.net()", "$n.net.cfg.model.rate"), ("$n.net.cfg.model.rate = $v",)),
    Home("model_attribute", "model.rate_$n = $v", ("model.rate_$n", "getattr(model, 'rate_$n')"), ("model.rate_$n = $v",),
         absent="pass", delete="del model.rate_$n", late_reads=("getattr(model, 'rate_$n', $d)",)),
    Home("forward_replaced", "$n = nn.Module()\n$n.forward = lambda: $v", ("$n()",), ("$n.forward = lambda: $v",)),
    Home("param_group_entry", "optimizer.param_groups[0]['$n'] = $v",
         ("optimizer.param_groups[0]['$n']", "optimizer.param_groups[0].get('$n')",
          "[group['$n'] for group in optimizer.param_groups][0]"),
         ("optimizer.param_groups[0]['$n'] = $v", "optimizer.param_groups[0].update($n=$v)"), absent="pass",
         delete="del optimizer.param_groups[0]['$n']", late_reads=("optimizer.param_groups[0].get('$n', $d)",)),
    Home("optimizer_attribute", "optimizer.rate_$n = $v", ("optimizer.rate_$n", "getattr(optimizer, 'rate_$n')"),
         ("optimizer.rate_$n = $v",)),
    Home("optimizer_defaults", "optimizer.defaults['$n'] = $v", ("optimizer.defaults['$n']",), ("optimizer.defaults['$n'] = $v",)),
    Home("training_flag", "$n = nn.Dropout(0.5)\n$n.train($v)", ("$n.training", "($n(torch.ones(99)).sum().item() != 99)"),
         ("$n.train($v)", "$n.training = $v"), kinds="bool"),
    Home("training_flag_of_a_class", "class $n:\n    net = nn.Sequential(nn.Dropout(0.5))\n    net.train($v)",
         ("$n.net.training", "($n.net(torch.ones(99)).sum().item() != 99)"), ("$n.net.train($v)",), kinds="bool"),
    Home("requires_grad_flag", "$n = nn.Linear(2, 2)\n$n.weight.requires_grad_($v)", ("$n.weight.requires_grad",),
         ("$n.weight.requires_grad_($v)",), kinds="bool"),
    Home("tensor_size", "$n = torch.zeros($v, 2)", ("$n.shape[0]", "len($n)", "$n.size(0)", "$n.numel() // 2"),
         ("$n = torch.zeros($v, 2)", "$n.resize_($v, 2).zero_()", "$n.data = torch.zeros($v, 2)"), kinds="int"),
    Home("module_count", "$n = nn.ModuleList([nn.Identity() for _ in range($v)])", ("len($n)", "sum(1 for _ in $n)", "len(list($n.children()))"),
         ("$n = nn.ModuleList([nn.Identity() for _ in range($v)])",), kinds="int"),
    Home("gradient_presence", "$n = torch.zeros(2)\n$n.grad = torch.ones(2) if $v else None", ("($n.grad is not None)",),
         ("$n.grad = torch.ones(2) if $v else None",), kinds="bool"),
    Home("parameter_attribute", "first.weight.rate_$n = $v", ("first.weight.rate_$n", "getattr(first.weight, 'rate_$n')"),
         ("first.weight.rate_$n = $v",), absent="pass", delete="del first.weight.rate_$n",
         late_reads=("getattr(first.weight, 'rate_$n', $d)",), tensors=False),
]
