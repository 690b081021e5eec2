"""Stable-Baselines3 with steptape.sb3.accelerate beside Stable-Baselines3 without: policies, optimizers, what is logged, saved models."""
import copy
import pickle

import gymnasium
import numpy as np
import pytest
import torch

import steptape
from twins import bits

sb3 = pytest.importorskip("stable_baselines3")
contrib = pytest.importorskip("sb3_contrib")
from stable_baselines3.common.logger import KVWriter, Logger  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize  # noqa: E402

import steptape.sb3  # noqa: E402

NEVER = {"first": True, "rate": 0.0}
OFF_POLICY = dict(learning_starts=50, batch_size=32, policy_kwargs={"net_arch": [24, 24]})
ON_POLICY = dict(n_steps=64, batch_size=16, n_epochs=4, policy_kwargs={"net_arch": [16]})


class Rows(KVWriter):
    """What is logged, but for times."""

    def __init__(self):
        self.rows = []

    def write(self, key_values, key_excluded, step=0):
        self.rows.append((step, {key: bits(np.asarray(value)) for key, value in key_values.items() if not key.startswith("time/")}))

    def close(self):
        pass


class Dicts(gymnasium.Env):
    """Observations of several parts."""
    observation_space = gymnasium.spaces.Dict({"place": gymnasium.spaces.Box(-1, 1, (3,)), "kind": gymnasium.spaces.Discrete(4)})
    action_space = gymnasium.spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 20
        return self.seen(), {}

    def seen(self):
        return {"place": self.np_random.uniform(-1, 1, 3).astype(np.float32), "kind": int(self.np_random.integers(4))}

    def step(self, action):
        self.left -= 1
        return self.seen(), float(np.sum(action)), self.left == 0, False, {}


def normalized():
    return VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")] * 2))


RUNS = {  # (algorithm, environment, steps, its arguments)
    "ppo": (sb3.PPO, "CartPole-v1", 600, ON_POLICY),
    "ppo, annealed": (sb3.PPO, "Pendulum-v1", 600, {
        **ON_POLICY, "clip_range": lambda left: .2 * left, "clip_range_vf": .3, "learning_rate": lambda left: 1e-3 * left, "ent_coef": .01}),
    "ppo, early stopping": (sb3.PPO, "Pendulum-v1", 600, {**ON_POLICY, "target_kl": .01, "learning_rate": 2e-3}),
    "ppo, parts": (sb3.PPO, Dicts, 600, {**ON_POLICY, "policy": "MultiInputPolicy"}),
    "ppo, normalized": (sb3.PPO, normalized, 900, ON_POLICY),
    "a2c": (sb3.A2C, "CartPole-v1", 300, {}),
    "a2c, sde": (sb3.A2C, "Pendulum-v1", 300, {"use_sde": True, "normalize_advantage": True}),
    "dqn": (sb3.DQN, "CartPole-v1", 500, {**OFF_POLICY, "target_update_interval": 60}),
    "dqn, many steps": (sb3.DQN, "CartPole-v1", 300, {**OFF_POLICY, "gradient_steps": -1, "n_steps": 3}),
    "sac": (sb3.SAC, "Pendulum-v1", 250, OFF_POLICY),
    "sac, fixed": (sb3.SAC, "Pendulum-v1", 250, {**OFF_POLICY, "ent_coef": .1}),
    "sac, normalized": (sb3.SAC, normalized, 350, OFF_POLICY),
    "sac, delayed": (sb3.SAC, "Pendulum-v1", 250, {**OFF_POLICY, "gradient_steps": 3, "train_freq": 3, "target_update_interval": 2}),
    "td3": (sb3.TD3, "Pendulum-v1", 250, OFF_POLICY),
    "ddpg": (sb3.DDPG, "Pendulum-v1", 250, OFF_POLICY),
    "qr-dqn": (contrib.QRDQN, "CartPole-v1", 500, OFF_POLICY),
    "tqc": (contrib.TQC, "Pendulum-v1", 250, OFF_POLICY),
    "crossq": (contrib.CrossQ, "Pendulum-v1", 250, OFF_POLICY),
    "trpo": (contrib.TRPO, "CartPole-v1", 400, {"n_steps": 64, "batch_size": 16, "policy_kwargs": {"net_arch": [16]}}),
    "recurrent ppo": (contrib.RecurrentPPO, "CartPole-v1", 300, {
        **ON_POLICY, "policy": "MlpLstmPolicy", "policy_kwargs": {"lstm_hidden_size": 8, "net_arch": [8]}}),
}


def make(algorithm, environment, arguments, wrap):
    made = environment() if callable(environment) else environment
    arguments = copy.deepcopy(arguments)
    model = algorithm(arguments.pop("policy", "MlpPolicy"), made, seed=3, device="cpu", **arguments)
    return steptape.sb3.accelerate(model, verify=NEVER) if wrap else model


def played(model, steps):
    rows = Rows()
    model.set_logger(Logger(None, [rows]))
    model.learn(steps, log_interval=1)
    return rows.rows, bits(model.get_parameters()), model._n_updates, torch.random.get_rng_state().tolist()


@pytest.mark.parametrize("algorithm, environment, steps, arguments", RUNS.values(), ids=RUNS)
def test_trains_as_without(algorithm, environment, steps, arguments):
    expected = played(make(algorithm, environment, arguments, wrap=False), steps)
    model = make(algorithm, environment, arguments, wrap=True)
    assert played(model, steps) == expected, model.steptape_step.explain()
    stats = model.steptape_step.stats
    first = stats["recorded"] + stats["trials"]
    if algorithm is contrib.RecurrentPPO:  # other lengths of sequences in each minibatch: some that come again replay
        return
    least = .8 if arguments.get("target_kl") else .9
    assert stats["replayed"] >= least * (stats["steps"] - first) and first <= stats["steps"] / 3, model.steptape_step.explain()


def test_a_saved_model_is_that_of_the_algorithm(tmp_path):
    for wrap, path in ((False, tmp_path / "plain"), (True, tmp_path / "taped")):
        model = make(sb3.PPO, "CartPole-v1", ON_POLICY, wrap)
        played(model, 200)
        model.save(path)
    loaded = sb3.PPO.load(tmp_path / "taped", env=gymnasium.make("CartPole-v1"))
    assert type(loaded) is sb3.PPO and isinstance(model, sb3.PPO)
    assert bits(loaded.get_parameters()) == bits(sb3.PPO.load(tmp_path / "plain").get_parameters())
    again, plain = steptape.sb3.accelerate(loaded, verify=NEVER), sb3.PPO.load(tmp_path / "plain", env=gymnasium.make("CartPole-v1"))
    for model in (plain, again):
        model.set_random_seed(5)
        model.seen = played(model, 200)
    assert again.seen == plain.seen
    assert again.steptape_step.stats["replayed"] > 0


def test_others_of_the_class_are_models_of_their_own(tmp_path):
    """What the class makes or loads, copies, and what is pickled: each trains itself, without a step."""
    outcomes = []
    for wrap in (False, True):
        model = make(sb3.DQN, "CartPole-v1", OFF_POLICY, wrap)
        played(model, 120)
        model.save(tmp_path / "dqn")
        arguments = dict(env=gymnasium.make("CartPole-v1"), device="cpu")
        others = [model.load(tmp_path / "dqn", **arguments), type(model)("MlpPolicy", "CartPole-v1", seed=4, **OFF_POLICY, device="cpu"),
                  copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        others.append(type(model)("MlpPolicy", "CartPole-v1", seed=4, **OFF_POLICY, device="cpu"))
        vars(others[-1]).update({key: value for key, value in vars(model).items() if "steptape" in key})
        seen = []
        for other in others:
            other.set_random_seed(5)
            seen.append((played(other, 120), bits(model.get_parameters())))
        outcomes.append(seen)
        assert [type(other) for other in others[2:4]] == [sb3.DQN, sb3.DQN]
        assert all(getattr(other, "steptape_step", None) is None for other in others[:4])
    assert outcomes[0] == outcomes[1]


def test_what_an_accelerated_model_loads_is_accelerated_as_another(tmp_path):
    outcomes = []
    for wrap in (False, True):
        model = make(sb3.DQN, "CartPole-v1", OFF_POLICY, wrap)
        seen = [played(model, 120)]
        model.save(tmp_path / "dqn")
        model = model.load(tmp_path / "dqn", env=gymnasium.make("CartPole-v1"), device="cpu")
        if wrap:
            model = steptape.sb3.accelerate(model, verify=NEVER)
        model.set_random_seed(5)
        outcomes.append([*seen, played(model, 200), bits(model.get_parameters())])
    assert outcomes[0] == outcomes[1] and model.steptape_step.stats["replayed"] > 0, model.steptape_step.explain()


def test_a_train_of_the_program_s_own():
    class Own(sb3.DQN):
        def train(self, gradient_steps, batch_size=32):
            for _ in range(gradient_steps):
                data = self.replay_buffer.sample(batch_size)
                loss = self.q_net(data.observations).gather(1, data.actions.long()).square().mean()
                self.policy.optimizer.zero_grad()
                loss.backward()
                self.policy.optimizer.step()
            self._n_updates += gradient_steps

    expected = played(make(Own, "CartPole-v1", OFF_POLICY, wrap=False), 300)
    model = make(Own, "CartPole-v1", OFF_POLICY, wrap=True)
    assert played(model, 300) == expected and model.steptape_step.stats["replayed"] > 20, model.steptape_step.explain()


def test_what_cannot_be_is_refused_with_the_reason():
    class Twice(sb3.A2C):
        def train(self):
            for _ in range(2):
                self.policy.optimizer.step()
            for _ in range(2):
                self.policy.optimizer.step()

    with pytest.raises(steptape.InvalidArgument, match="Twice.train: 2 loops in it"):
        make(Twice, "CartPole-v1", {}, wrap=True)
    model = make(sb3.A2C, "CartPole-v1", {}, wrap=True)
    with pytest.raises(steptape.InvalidArgument, match="has been accelerated"):
        steptape.sb3.accelerate(model)
    model = make(sb3.A2C, "CartPole-v1", {}, wrap=False)
    model.train = model.train
    with pytest.raises(steptape.InvalidArgument, match="has a `train` of its own"):
        steptape.sb3.accelerate(model)


@pytest.mark.parametrize("how", ["wrapped", "replaced", "its code"])
def test_a_train_that_is_replaced_while_it_trains(how):
    """By a timer that patches the class, between two calls of `learn`."""
    def patched(before):
        def train(self, gradient_steps, batch_size=32):
            self.counted = getattr(self, "counted", 0) + 1
            before(self, gradient_steps, batch_size)
        return train

    def run(wrap):
        before, code = sb3.DQN.train, sb3.DQN.train.__code__
        try:
            model = make(sb3.DQN, "CartPole-v1", OFF_POLICY, wrap)
            first = played(model, 200)
            replayed = model.steptape_step.stats["replayed"] if wrap else None
            if how == "its code":
                before.__code__ = without_steps.__code__
            else:
                sb3.DQN.train = patched(before) if how == "wrapped" else without_steps
            return first, played(model, 100), getattr(model, "counted", 0), replayed
        finally:
            sb3.DQN.train, before.__code__ = before, code
    plain, taped = run(False), run(True)
    assert plain[:3] == taped[:3] and taped[3] > 10


def without_steps(self, gradient_steps, batch_size=32):
    self._n_updates += gradient_steps
