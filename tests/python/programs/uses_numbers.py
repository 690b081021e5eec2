"""What floats feed."""
from .rows import Use

_ANY = ("0.5", "0.25", "0.8", "0.35")
_FALLING = ("100.0", "90.0", "0.3", "0.1")  # the first new value has no effect
_SLOPES = ("0.2", "0.05", "0.7", "0.4")


def _float(name, text, values=_ANY, stage="hidden", setup=""):
    return Use(name, "float", stage, text, values, setup)


OPERANDS = [
    _float("multiply", "h = h * $v"),
    _float("multiply_reflected", "h = $v * h"),
    _float("add", "h = h + $v"),
    _float("subtract_reflected", "h = $v - h"),
    _float("divide", "h = h / $v"),
    _float("divide_reflected", "h = $v / (h.abs() + 1)"),
    _float("power", "h = h.abs().add(0.1) ** $v", ("2.0", "1.5", "3.0", "0.5")),
    _float("power_reflected", "h = $v ** h"),
    _float("in_place", "h = h.clone().mul_($v)"),
    _float("augmented", "h = h.clone()\nh *= $v"),
    _float("one_minus", "h = h * (1 - $v)"),
    _float("arithmetic", "h = h * (1 / (1 + $v) + $v ** 2)"),
    _float("minimum", "h = h * min($v, 0.3)"),
    _float("twice", "h = h * $v * torch.tensor([$v, 1.0, 2.0, 0.5])"),
    _float("host_tensor", "h = h * torch.tensor([$v, 1.0, 2.0, 0.5])"),
    _float("filled", "h = h + torch.full((4,), $v)"),
    _float("like", "h = h * torch.full_like(h, $v).detach()"),
    _float("alpha", "h = torch.add(h, h ** 2, alpha=$v)", ("1.0", "0.3", "0.6")),
    _float("subtract_alpha", "h = torch.sub(h, h ** 2, alpha=$v)"),
    _float("addmm_alpha", "h = torch.addmm(h * 0 + 5, h, torch.eye(4), beta=1.0, alpha=$v)", ("1.0", "0.5", "0.7")),
    _float("addmm_beta", "h = torch.addmm(h, h, torch.eye(4), beta=$v, alpha=1.0)", ("1.0", "0.5", "0.7")),
    _float("baddbmm", "h = torch.baddbmm(h[None], h[None], torch.eye(4)[None], beta=$v, alpha=0.5)[0]"),
    _float("addcmul", "h = torch.addcmul(h, h, h, value=$v)", ("1.0", "0.5", "0.7")),
    _float("addcdiv", "h = torch.addcdiv(h, h, h.abs() + 1, value=$v)"),
    _float("lerp", "h = torch.lerp(h, h * 2, $v)"),
    _float("compared", "h = torch.where(h > $v, h, h * 0.1)", _FALLING),
    _float("compared_reflected", "h = h * ($v > h).float()", _FALLING),
    _float("masked_fill", "h = h.masked_fill(h > 0, $v)"),
    _float("item_assigned", "h = h.clone()\nh[0] = $v"),
    _float("foreach", "h = torch._foreach_mul([h, h + 1], $v)[0]"),
    _float("linspace", "h = h * torch.linspace(0.0, $v, 4)", ("1.0", "0.5", "2.0")),
    _float("uniform", "h = h + torch.empty(4).uniform_(0.0, $v)", ("1.0", "0.5", "2.0")),
    _float("normal", "h = h + torch.normal(0.0, $v, (4,))", ("1.0", "0.5", "2.0")),
]

BACKWARD = [
    _float("leaky_relu", "h = F.leaky_relu(h, $v)", _SLOPES),
    _float("elu", "h = F.elu(h, $v)", _SLOPES),
    _float("celu", "h = F.celu(h, $v)", _SLOPES),
    _float("softplus", "h = F.softplus(h, beta=$v)", ("1.0", "0.5", "2.0")),
    _float("softplus_threshold", "h = F.softplus(h, threshold=$v)", ("20.0", "10.0", "0.2")),
    _float("hardtanh", "h = F.hardtanh(h, -$v, $v)", _FALLING),
    _float("clamp", "h = h.clamp(-$v, $v)", _FALLING),
    _float("clamp_around_one", "h = (h + 1).clamp(1 - $v, 1 + $v)", ("0.9", "0.2", "0.1", "0.05")),
    _float("clamp_min", "h = h.clamp_min(-$v)", _FALLING),
    _float("clip_max", "h = torch.clip(h, max=$v)", _FALLING),
    _float("threshold", "h = F.threshold(h, -$v, 0.0)", _FALLING),
    _float("hardshrink", "h = F.hardshrink(h, $v)", _SLOPES),
    _float("softshrink", "h = F.softshrink(h, $v)", _SLOPES),
    _float("power", "h = h.abs().add(0.1).pow($v)", ("2.0", "1.5", "3.0")),
    _float("dropout", "h = F.dropout(h, $v)", ("0.5", "0.1", "0.7")),
    _float("alpha_dropout", "h = F.alpha_dropout(h, $v, True)", ("0.5", "0.1", "0.7")),
    _float("layer_norm", "h = F.layer_norm(h, (4,), eps=$v)", ("1e-05", "0.1", "0.5")),
    _float("batch_norm", "h = F.batch_norm(h, torch.zeros(4), torch.ones(4), training=True, momentum=$v, eps=0.1)"),
    _float("normalize", "h = F.normalize(h, p=$v)", ("2.0", "1.0", "3.0")),
    _float("norm", "h = h / h.norm($v, dim=1, keepdim=True)", ("2.0", "1.0", "3.0")),
    _float("gumbel", "h = F.gumbel_softmax(h, $v)", ("1.0", "0.2", "2.0")),
    _float("softmax_temperature", "h = (h / $v).softmax(1)", ("1.0", "0.2", "2.0")),
    _float("nan_to_num", "h = (h / (h > 0).float()).nan_to_num(0.1, $v, -$v)", ("1.0", "0.5", "2.0")),
    _float("own_function", "h = Scale_$n.apply(h, $v)", setup="class Scale_$n(torch.autograd.Function):\n    @staticmethod\n"
           "    def forward(ctx, h, k):\n        ctx.k = k\n        return h * k\n    @staticmethod\n    def backward(ctx, g):\n        return g * ctx.k, None"),
    _float("own_backward_alone", "h = Reverse_$n.apply(h, $v)", setup="class Reverse_$n(torch.autograd.Function):\n    @staticmethod\n"
           "    def forward(ctx, h, k):\n        ctx.k = k\n        return h.view_as(h)\n    @staticmethod\n    def backward(ctx, g):\n        return -ctx.k * g, None"),
    _float("hook", "h = h * 1\nif h.requires_grad:\n    h.register_hook(lambda g, k=$v: g * k)"),
    _float("checkpoint", "h = torch.utils.checkpoint.checkpoint(lambda h, k: F.leaky_relu(h, k), h, $v, use_reentrant=False)", _SLOPES),
]

LOSSES = [
    _float("weight", "loss = loss * $v", stage="loss"),
    _float("weight_reflected", "loss = $v * loss", stage="loss"),
    _float("penalty", "loss = loss + $v * sum(p.pow(2).sum() for p in model.parameters())", stage="loss"),
    _float("huber", "loss = loss + F.huber_loss(out, y, delta=$v)", _FALLING, stage="loss"),
    _float("smooth_l1", "loss = loss + F.smooth_l1_loss(out, y, beta=$v)", _FALLING, stage="loss"),
    _float("label_smoothing", "loss = loss + F.cross_entropy(out, y.argmax(1), label_smoothing=$v)", ("0.1", "0.2", "0.3"), stage="loss"),
    _float("margin", "loss = loss + F.margin_ranking_loss(out[:, 0], out[:, 1], torch.ones(4), margin=$v)", stage="loss"),
    _float("triplet", "loss = loss + F.triplet_margin_loss(out, y, y.flip(0), margin=$v)", stage="loss"),
    _float("hinge", "loss = loss + F.hinge_embedding_loss(out, y.sign(), margin=$v)", stage="loss"),
    _float("gaussian", "loss = loss + F.gaussian_nll_loss(out, y, torch.ones(4, 3), eps=$v)", ("0.5", "2.0", "3.0"), stage="loss"),
    _float("quantile", "loss = loss + torch.max(($v - 1) * (y - out), $v * (y - out)).mean()", stage="loss"),
    _float("ratio_clip", "ratio = (out * 2).exp()\nloss = loss - torch.min(ratio * y, ratio.clamp(1 - $v, 1 + $v) * y).mean()",
           _FALLING, stage="loss"),
]

UPDATES = [
    _float("rate", "optimizer.param_groups[0]['lr'] = $v", ("0.1", "0.05", "0.2"), stage="gradient"),
    _float("decay", "optimizer.param_groups[0]['weight_decay'] = $v", ("0.1", "0.05", "0.2"), stage="gradient"),
    _float("clip_norm", "nn.utils.clip_grad_norm_(model.parameters(), $v)", _FALLING, stage="gradient"),
    _float("clip_value", "nn.utils.clip_grad_value_(model.parameters(), $v)", _FALLING, stage="gradient"),
    _float("scale_gradients", "for p in model.parameters():\n    p.grad.mul_($v)", stage="gradient"),
    _float("noise", "for p in model.parameters():\n    p.grad.add_(torch.randn_like(p), alpha=$v)", stage="gradient"),
    _float("soft_update", "with torch.no_grad():\n    for p, q in zip(model.parameters(), average.parameters()):\n        q.lerp_(p, $v)",
           stage="gradient", setup="average = copy.deepcopy(model)"),
]

BRANCHES = [
    _float("branch", "if $v > 0.3:\n    h = h * 2"),
    _float("branch_reflected", "if 0.3 < $v:\n    h = h * 2"),
    _float("branch_int", "if 1 > 2 * $v:\n    h = h * 2"),
    _float("truth", "if $v:\n    h = h * 2", ("0.5", "0.0", "0.8")),
    _float("count", "for _ in range(int($v * 4)):\n    h = h + 1"),
    _float("table", "h = h * [1.0, 1.0, 0.5, 0.25][int($v * 4)]"),
    _float("bisected", "h = h * bisect.bisect([0.1, 0.3, 0.6], $v)"),
    _float("type", "h = h * (2 if type($v) is float else 3)"),
    _float("isinstance", "h = h * (2 if isinstance($v, float) else 3)"),
    _float("raised", "if $v < 0.3:\n    raise ValueError(f'rate {$v}')"),
]

RESULTS = [
    _float("result", "$v", stage="result"),
    _float("result_beside_constant", "(x + $v, 0.5)", stage="result"),
    _float("result_arithmetic", "1 - $v", stage="result"),
    _float("result_text", "f'rate {$v:.3f}'", stage="result"),
    _float("result_percent", "'rate %.4f' % $v", stage="result"),
    _float("result_long_text", "'experiment resnet50-imagenet-baseline-cosine-ema-mixup-cutmix-run-0001-seed-42, train: %.4f' % $v", stage="result"),
    _float("result_list", "[$v, 0.5, {'rate': $v}]", stage="result"),
    _float("result_comparison", "$v > 0.3", stage="result"),
    _float("result_tensor", "torch.tensor([$v, 1.0])", stage="result"),
    _float("result_numpy", "np.float64($v)", stage="result"),
]
