"""Models as people train them, from random weights: each trains as its eager twin, bit for bit.

Architectures are torchvision's and transformers' own classes, or the usual textbook form, at a size
of some thousands of parameters; optimizers are AdamW and learning rates move after each step. A row
with `share` replays nearly always once its trial is over; a row with `codes` is refused by name.
"""
import math

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR

import steptape
from twins import Program, compare

torchvision = pytest.importorskip("torchvision", reason="no torchvision goes with this torch")

STEPS = 50
REPLAYS = {"share": 0.9}
BATCH, CLASSES, VOCABULARY, LENGTH = 4, 10, 37, 12


def adamw(*modules, lr=2e-3, **options):
    parameters = [p for module in modules for p in module.parameters()]
    return torch.optim.AdamW(parameters, lr=lr, weight_decay=0.01, **options)


def cosine(optimizer):
    return CosineAnnealingLR(optimizer, T_max=STEPS)


class Supervised:
    """zero_grad, forward, loss, backward, AdamW; the loss is returned."""

    def __init__(self, model, loss, draw):
        self.model, self.loss, self.draw = model, loss, draw
        self.optimizer = adamw(model)
        self.scheduler = cosine(self.optimizer)

    def step(self, *batch):
        self.optimizer.zero_grad()
        loss = self.loss(self.model, *batch)
        loss.backward()
        self.optimizer.step()
        return loss

    def batch(self, i):
        return self.draw()

    def after(self, i):
        self.scheduler.step()

    def holds(self):
        return [self.model, self.optimizer, self.scheduler]


def classification(model, x, y):
    return F.cross_entropy(model(x), y)


def images(side):
    return lambda: (torch.randn(BATCH, 3, side, side), torch.randint(CLASSES, (BATCH,)))


class NarrowResNet(torchvision.models.ResNet):
    """A stem of 64 channels as ever, then stages an eighth as wide."""

    def _make_layer(self, block, planes, *args, **kwargs):
        return super()._make_layer(block, planes // 8, *args, **kwargs)


def resnet18_an_eighth_as_wide():
    model = NarrowResNet(torchvision.models.resnet.BasicBlock, [2, 2, 2, 2])
    model.fc = nn.Linear(512 // 8, CLASSES)
    return Supervised(model, classification, images(32))


def mobilenet_v3_small_a_quarter_as_wide():
    model = torchvision.models.mobilenet_v3_small(width_mult=0.25, reduced_tail=True,
                                                  num_classes=CLASSES)
    return Supervised(model, classification, images(32))


def vision_transformer_of_two_layers():
    model = torchvision.models.VisionTransformer(
        image_size=16, patch_size=4, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32,
        dropout=0.1, attention_dropout=0.1, num_classes=CLASSES)
    return Supervised(model, classification, images(16))


def convnext_of_three_blocks():
    config = torchvision.models.convnext.CNBlockConfig
    model = torchvision.models.ConvNeXt([config(16, 32, 1), config(32, None, 2)],
                                        stochastic_depth_prob=0.2, num_classes=CLASSES)
    return Supervised(model, classification, images(16))


def tokens():
    return (torch.randint(VOCABULARY, (BATCH, LENGTH)),)


def next_token(model, ids):
    return model(input_ids=ids, labels=ids).loss


def gpt2(**options):
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=16, n_layer=2, n_head=2,
        bos_token_id=0, eos_token_id=0, **options)
    return Supervised(transformers.GPT2LMHeadModel(config).train(), next_token, tokens)


def gpt2_with_eager_attention():
    return gpt2(attn_implementation="eager")


class Classifier(Supervised):
    """The whole ModelOutput is returned, with the logits."""

    def __init__(self, model, draw):
        super().__init__(model, None, draw)

    def step(self, ids, mask, labels):
        self.optimizer.zero_grad()
        output = self.model(input_ids=ids, attention_mask=mask, labels=labels)
        output.loss.backward()
        self.optimizer.step()
        return output


def bert(**options):
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=LENGTH, num_labels=3, **options)
    model = transformers.BertForSequenceClassification(config).train()

    def draw():  # rows of several lengths, padded
        mask = torch.arange(LENGTH) < torch.randint(2, LENGTH, (BATCH, 1))
        return (*tokens(), mask.long(), torch.randint(3, (BATCH,)))

    return Classifier(model, draw)


def bert_with_eager_attention():
    return bert(attn_implementation="eager")


def llama(**options):
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=LENGTH,
        attention_dropout=0.1, pad_token_id=0, bos_token_id=0, eos_token_id=0, **options)
    return Supervised(transformers.LlamaForCausalLM(config).train(), next_token, tokens)


def llama_with_eager_attention():
    return llama(attn_implementation="eager")


def t5():
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2,
        relative_attention_num_buckets=8, decoder_start_token_id=0, pad_token_id=0)
    model = transformers.T5ForConditionalGeneration(config).train()
    return Supervised(model, lambda model, ids, labels: model(input_ids=ids, labels=labels).loss,
                      lambda: tokens() + tokens())


class Attention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.dropout = heads, dropout

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for z in self.qkv(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                           dropout_p=self.dropout if self.training else 0)
        return F.dropout(self.out(y.transpose(1, 2).reshape(b, t, c)), self.dropout, self.training)


class NanoGPT(nn.Module):
    """One block; the head shares its weight with the embedding of tokens."""

    def __init__(self, width=16, heads=2, dropout=0.1):
        super().__init__()
        self.token, self.position = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads, dropout)
        self.norm2, self.norm3 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width), nn.Dropout(dropout))
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.token.weight

    def forward(self, x, y):
        h = self.token(x) + self.position(torch.arange(x.shape[1]))
        h = h + self.attention(self.norm1(h))
        h = self.norm3(h + self.mlp(self.norm2(h)))
        return F.cross_entropy(self.head(h).flatten(0, 1), y.flatten())


class NanoGPTLoop:
    """The update of nanoGPT: micro-steps that add up gradients, clipping, AdamW of two groups."""

    MICRO_STEPS = 3

    def __init__(self):
        self.model = NanoGPT()
        parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(
            [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
             {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}],
            lr=self.rate(0), betas=(0.9, 0.95))
        self.data = torch.randint(VOCABULARY, (500,))

    @staticmethod
    def rate(i):
        """Warm-up, then a cosine."""
        return 1e-3 * (i + 1) / 10 if i < 10 else 5e-4 * (1 + math.cos(math.pi * (i - 10) / 40))

    def update(self, micro_batches):
        total = 0
        for x, y in micro_batches:
            loss = self.model(x, y) / self.MICRO_STEPS
            total = total + loss.detach()
            loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total

    def fetch_slices(self):
        at = torch.randint(len(self.data) - LENGTH, (BATCH,))
        return (torch.stack([self.data[i:i + LENGTH] for i in at]),
                torch.stack([self.data[i + 1:i + 1 + LENGTH] for i in at]))

    def fetch_by_index(self):
        at = torch.randint(len(self.data) - LENGTH, (BATCH, 1)) + torch.arange(LENGTH)
        return self.data[at], self.data[at + 1]

    def batch(self, i):
        return ()

    def after(self, i):
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(i + 1)

    def holds(self):
        return [self.model, self.optimizer]


class FetchesSlices(NanoGPTLoop):
    def step(self):
        return self.update(self.fetch_slices() for _ in range(self.MICRO_STEPS))


class FetchesByIndex(NanoGPTLoop):
    def step(self):
        return self.update(self.fetch_by_index() for _ in range(self.MICRO_STEPS))


class IsGivenItsBatches(NanoGPTLoop):
    def step(self, micro_batches):
        return self.update(micro_batches)

    def batch(self, i):
        return ([self.fetch_slices() for _ in range(self.MICRO_STEPS)],)


def nanogpt_that_slices_its_batch_inside():
    return FetchesSlices()


def nanogpt_that_indexes_its_batch_inside():
    return FetchesByIndex()


def nanogpt_that_is_given_its_batches():
    return IsGivenItsBatches()


OBSERVATION, ACTIONS = 6, 3


def mlp(inputs, outputs, width=16):
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs))


class PPO:
    """An epoch over a rollout is one step: four mini-batches in a random order, four updates."""

    ROLLOUT, MINI_BATCHES = 32, 4

    def __init__(self):
        self.policy, self.value = mlp(OBSERVATION, ACTIONS), mlp(OBSERVATION, 1)
        self.optimizer = adamw(self.policy, self.value, eps=1e-5)
        self.scheduler = LambdaLR(self.optimizer, lambda epoch: 1 - epoch / (2 * STEPS))

    def update(self, observations, actions, old_log_prob, advantages, returns):
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        policy = torch.distributions.Categorical(logits=self.policy(observations))
        ratio = (policy.log_prob(actions) - old_log_prob).exp()
        surrogate = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
        value_loss = F.mse_loss(self.value(observations).squeeze(1), returns)
        loss = 0.5 * value_loss - surrogate - 0.01 * policy.entropy().mean()
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(
            [*self.policy.parameters(), *self.value.parameters()], 0.5)
        self.optimizer.step()
        return loss, norm

    def step(self, *rollout):
        order = torch.randperm(self.ROLLOUT)
        return [self.update(*(x[part] for x in rollout)) for part in order.chunk(self.MINI_BATCHES)]

    def batch(self, i):
        n = self.ROLLOUT
        observations = torch.randn(n, OBSERVATION)
        with torch.no_grad():
            policy = torch.distributions.Categorical(logits=self.policy(observations))
            actions = policy.sample()
            log_prob = policy.log_prob(actions)
        return observations, actions, log_prob, torch.randn(n), torch.randn(n)

    def after(self, i):
        self.scheduler.step()

    def holds(self):
        return [self.policy, self.value, self.optimizer, self.scheduler]


class PPOByMiniBatch(PPO):
    """A mini-batch is one step."""

    def step(self, *mini_batch):
        return self.update(*mini_batch)


def ppo_epoch():
    return PPO()


def ppo_mini_batch():
    return PPOByMiniBatch()


class DQN:
    """Double DQN; the target network follows by a copy every ten steps, outside."""

    def __init__(self):
        self.online, self.target = mlp(OBSERVATION, ACTIONS), mlp(OBSERVATION, ACTIONS)
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = adamw(self.online, amsgrad=True)
        self.scheduler = cosine(self.optimizer)

    def step(self, state, action, reward, following, done):
        with torch.no_grad():
            best = self.online(following).argmax(1, keepdim=True)
            value = self.target(following).gather(1, best).squeeze(1)
            expected = reward + 0.99 * (1 - done) * value
        predicted = self.online(state).gather(1, action.unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(predicted, expected)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(self.online.parameters(), 100)
        self.optimizer.step()
        return loss

    def batch(self, i):
        n = 8
        return (torch.randn(n, OBSERVATION), torch.randint(ACTIONS, (n,)), torch.randn(n),
                torch.randn(n, OBSERVATION), torch.bernoulli(torch.full((n,), 0.1)))

    def after(self, i):
        self.scheduler.step()
        if i % 10 == 9:
            self.target.load_state_dict(self.online.state_dict())

    def holds(self):
        return [self.online, self.target, self.optimizer, self.scheduler]


def follow(target, source, rate):
    """Polyak averaging, in place."""
    with torch.no_grad():
        for average, parameter in zip(target.parameters(), source.parameters()):
            average.mul_(1 - rate).add_(parameter, alpha=rate)


class DQNWithSoftTarget(DQN):
    """The target network follows a little in each step, inside."""

    def step(self, *transition):
        loss = super().step(*transition)
        follow(self.target, self.online, 0.05)
        return loss

    def after(self, i):
        self.scheduler.step()


def dqn_with_hard_target_update_outside():
    return DQN()


def dqn_with_soft_target_update_inside():
    return DQNWithSoftTarget()


class SAC:
    """Soft actor-critic: three optimizers; the temperature is read as a number and multiplies."""

    def __init__(self):
        self.actor = mlp(OBSERVATION, 2 * ACTIONS)
        self.critics = nn.ModuleList(mlp(OBSERVATION + ACTIONS, 1) for _ in range(2))
        self.targets = nn.ModuleList(mlp(OBSERVATION + ACTIONS, 1) for _ in range(2))
        self.targets.load_state_dict(self.critics.state_dict())
        self.log_alpha = nn.Parameter(torch.zeros(()))
        self.actor_optimizer, self.critic_optimizer = adamw(self.actor), adamw(self.critics)
        self.alpha_optimizer = torch.optim.AdamW([self.log_alpha], lr=1e-2)
        self.optimizers = [self.actor_optimizer, self.critic_optimizer, self.alpha_optimizer]
        self.schedulers = [cosine(optimizer) for optimizer in self.optimizers]

    def act(self, state):
        mean, log_std = self.actor(state).chunk(2, dim=1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        raw = normal.rsample()
        action = raw.tanh()
        log_prob = normal.log_prob(raw) - (1 - action.square() + 1e-6).log()
        return action, log_prob.sum(1, keepdim=True)

    def step(self, state, action, reward, following):
        alpha = self.log_alpha.exp().item()

        with torch.no_grad():
            next_action, next_log_prob = self.act(following)
            pair = torch.cat([following, next_action], dim=1)
            value = torch.min(*(critic(pair) for critic in self.targets)) - alpha * next_log_prob
            expected = reward + 0.99 * value
        pair = torch.cat([state, action], dim=1)
        critic_loss = sum(F.mse_loss(critic(pair), expected) for critic in self.critics)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()

        new_action, log_prob = self.act(state)
        pair = torch.cat([state, new_action], dim=1)
        value = torch.min(*(critic(pair) for critic in self.critics))
        actor_loss = (alpha * log_prob - value).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()

        alpha_loss = -(self.log_alpha * (log_prob.detach() - ACTIONS)).mean()
        self.alpha_optimizer.zero_grad()
        alpha_loss.backward()
        self.alpha_optimizer.step()

        follow(self.targets, self.critics, 0.005)
        return critic_loss, actor_loss, alpha_loss

    def batch(self, i):
        n = 8
        return (torch.randn(n, OBSERVATION), torch.rand(n, ACTIONS) * 2 - 1, torch.randn(n, 1),
                torch.randn(n, OBSERVATION))

    def after(self, i):
        for scheduler in self.schedulers:
            scheduler.step()

    def holds(self):
        return [self.actor, self.critics, self.targets, self.log_alpha, self.log_alpha.grad,
                self.optimizers, self.schedulers]


def sac():
    return SAC()


class VAE(nn.Module):
    def __init__(self, pixels=64, latent=4):
        super().__init__()
        self.encoder, self.decoder = mlp(pixels, 2 * latent), mlp(latent, pixels)

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(z), mean, log_variance


def vae():
    def loss(model, x):
        logits, mean, log_variance = model(x)
        likelihood = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
        return (likelihood + divergence) / len(x)

    return Supervised(VAE(), loss, lambda: (torch.rand(8, 64),))


class GAN:
    """Both networks in one step, each with an optimizer of its own."""

    LATENT, POINT = 4, 8

    def __init__(self):
        self.generator = nn.Sequential(nn.Linear(self.LATENT, 16), nn.BatchNorm1d(16), nn.ReLU(),
                                       nn.Linear(16, self.POINT))
        self.critic = nn.Sequential(nn.Linear(self.POINT, 16), nn.LeakyReLU(0.2), nn.Dropout(0.1),
                                    nn.Linear(16, 1))
        self.generator_optimizer = adamw(self.generator, betas=(0.5, 0.999))
        self.critic_optimizer = adamw(self.critic, betas=(0.5, 0.999))
        self.schedulers = [cosine(self.generator_optimizer), cosine(self.critic_optimizer)]

    def fake(self):
        return self.generator(torch.randn(8, self.LATENT))

    def train_critic(self, real):
        self.critic_optimizer.zero_grad()
        fake = self.fake().detach()
        loss = (F.softplus(-self.critic(real)) + F.softplus(self.critic(fake))).mean()
        loss.backward()
        self.critic_optimizer.step()
        return loss

    def train_generator(self):
        self.generator_optimizer.zero_grad()
        loss = F.softplus(-self.critic(self.fake())).mean()
        loss.backward()
        self.generator_optimizer.step()
        return loss

    def step(self, real):
        return self.train_critic(real), self.train_generator()

    def batch(self, i):
        return (torch.randn(8, self.POINT),)

    def after(self, i):
        for scheduler in self.schedulers:
            scheduler.step()

    def holds(self):
        return [self.generator, self.critic, self.generator_optimizer, self.critic_optimizer,
                self.schedulers]


def gan():
    return GAN()


def in_two_steps(training, options):
    """The two halves of a GAN's step, each wrapped by itself."""
    critic = steptape.wrap(training.train_critic, name="critic", **options)
    generator = steptape.wrap(training.train_generator, name="generator", **options)
    return Program(lambda real: (critic(real), generator()), critic, generator)


class UNet(nn.Module):
    """One level down and up, with a skip; the time enters by sines and a linear layer."""

    def __init__(self, width=8):
        super().__init__()
        self.register_buffer("frequencies", torch.exp(-torch.arange(4) * math.log(1e4) / 4))
        self.time = nn.Linear(8, 2 * width)
        self.enter = nn.Conv2d(1, width, 3, padding=1)
        self.leave = nn.Conv2d(width, 1, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.join = nn.Conv2d(2 * width, width, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(4, c) for c in (width, 2 * width, width))

    def forward(self, x, t):
        angle = t.unsqueeze(1) * self.frequencies
        time = self.time(torch.cat([angle.sin(), angle.cos()], dim=1))
        top = F.silu(self.norms[0](self.enter(x)))
        bottom = self.down(top) + time[:, :, None, None]
        bottom = F.silu(self.norms[1](self.middle(F.dropout(bottom, 0.1, self.training))))
        return self.leave(F.silu(self.norms[2](self.join(torch.cat([top, self.up(bottom)], 1)))))


def diffusion_with_random_times_drawn_inside():
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), 0)

    def loss(model, x):
        t = torch.randint(len(kept), (len(x),))
        noise = torch.randn_like(x)
        share = kept[t].view(-1, 1, 1, 1)
        return F.mse_loss(model(share.sqrt() * x + (1 - share).sqrt() * noise, t), noise)

    return Supervised(UNet(), loss, lambda: (torch.randn(BATCH, 1, 8, 8),))


class GraphNetwork(nn.Module):
    """Two rounds of messages along edges, summed at their ends by index_add."""

    def __init__(self, width=16):
        super().__init__()
        self.enter, self.leave = nn.Linear(OBSERVATION, width), nn.Linear(width, CLASSES)
        self.messages = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(2))

    def forward(self, x, edges):
        source, end = edges
        h = self.enter(x).relu()
        for message in self.messages:
            along = message(torch.cat([h[source], h.index_select(0, end)], dim=1)).relu()
            h = h + torch.zeros_like(h).index_add(0, end, along)
        return self.leave(h)


def graph_network():
    nodes, edges = 20, 60
    return Supervised(GraphNetwork(), lambda model, x, e, y: F.cross_entropy(model(x, e), y),
                      lambda: (torch.randn(nodes, OBSERVATION), torch.randint(nodes, (2, edges)),
                               torch.randint(CLASSES, (nodes,))))


ROWS = [
    (resnet18_an_eighth_as_wide, REPLAYS),
    (mobilenet_v3_small_a_quarter_as_wide, REPLAYS),
    (vision_transformer_of_two_layers, REPLAYS),
    (convnext_of_three_blocks, REPLAYS),
    (gpt2, REPLAYS),
    (gpt2_with_eager_attention, REPLAYS),
    (bert, REPLAYS),
    (bert_with_eager_attention, REPLAYS),
    (llama, REPLAYS),
    (llama_with_eager_attention, REPLAYS),
    (t5, REPLAYS),
    # Drawn positions become slices: the host reads them, and each call looks at other memory.
    (nanogpt_that_slices_its_batch_inside,
     {"codes": {"host_read", "unstable_op_stream", "scalar_varies", "outside_tensor_varies"}}),
    (nanogpt_that_indexes_its_batch_inside, REPLAYS),
    (nanogpt_that_is_given_its_batches, REPLAYS),
    (ppo_epoch, REPLAYS),
    (ppo_mini_batch, REPLAYS),
    (dqn_with_hard_target_update_outside, REPLAYS),
    (dqn_with_soft_target_update_inside, REPLAYS),
    (sac, REPLAYS),
    (vae, REPLAYS),
    (gan, REPLAYS),
    (gan, REPLAYS | {"wrapper": in_two_steps}),
    (diffusion_with_random_times_drawn_inside, REPLAYS),
    (graph_network, REPLAYS),
]


def name_of(make, expected):
    return make.__name__ + ("_in_two_steps" if "wrapper" in expected else "")


@pytest.mark.parametrize("make, expected", ROWS, ids=[name_of(*row) for row in ROWS])
def test_trains_as_its_eager_twin(make, expected):
    compare(make, STEPS, **expected)
