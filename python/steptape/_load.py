"""Traces replayed without the model's code."""
import ast
import os
from typing import Any

import torch

from . import _engine


class LoadedStep:
    """A step of a trace: called with the tensors that the recorded step was called with."""

    def __init__(self, player, name):
        self._step = player.step(name)
        self.name = name
        self._shapes = {}  # by their texts: variants may return other structures

    def __call__(self, *inputs: torch.Tensor) -> Any:
        """Runs the step: the player's state moves on, and the results come back as they stood in what the
        recorded function returned. Raises FailedPrecondition with the verdict, nothing changed, when a
        guard does not hold."""
        tensors, numbers = self._step.run(list(inputs))
        text = self._step.structure()
        if text not in self._shapes:
            self._shapes[text] = _shape_of(text)
        return _built(self._shapes[text], iter(tensors), iter(numbers))

    def check(self, *inputs: torch.Tensor) -> str | None:
        """Why a call with these tensors would not hold: "inputs[0].size(0): 64 → 17"; None when it would."""
        return self._step.check(list(inputs))

    def inputs(self) -> list[dict]:
        """The tensors it takes: a list of dicts (path, dtype, sizes)."""
        return self._step.inputs()


class Player:
    """A trace opened for replay in a process that holds no model code. Owns parameters, module buffers,
    optimizer state and generators, filled from the trace. Not for several threads at a time."""

    def __init__(self, path, environment):
        self._player = _engine.Player(os.fspath(path), environment)
        self._steps = {}

    def steps(self) -> list[str]:
        """The names of the steps in the trace."""
        return self._player.steps()

    def __getitem__(self, name: str) -> LoadedStep:
        """The step of this name. Raises InvalidArgument, which lists the steps there are."""
        if name not in self._steps:
            self._steps[name] = LoadedStep(self._player, name)
        return self._steps[name]

    def tensor(self, path: str) -> torch.Tensor:
        """A parameter, module buffer or state tensor by its path; shares the player's memory."""
        return self._player.tensor(path)

    def state(self) -> list[dict]:
        """The tensors there are: a list of dicts (path, dtype, sizes)."""
        return self._player.state()

    def scalars(self) -> dict[str, float]:
        """Hyperparameters and declared values that can be read and set, by path."""
        return {path: self._player.scalar(path) for path in self._player.scalars()}

    def set(self, path: str, value: float) -> None:
        """Sets one for the steps from now on: player.set("optimizer.param_groups[0].lr", 3e-4)."""
        self._player.set(path, float(value))

    def save(self, path: str | os.PathLike) -> None:
        """Writes the trace with the state as it is now, atomically. Raises IoError."""
        self._player.save(os.fspath(path))

    def save_weights(self, path: str | os.PathLike, *, of: str = "", everything: bool = False) -> None:
        """Writes parameters and module buffers for other programs, atomically: safetensors where the name ends
        in ".safetensors", else a state dict, which torch.load(path, weights_only=True) reads.

        of: a tracked name; the names in the file begin behind it. of="model" makes those of
        model.state_dict(); without it they are as recorded, "model.fc1.weight".
        everything: also optimizer state, hyperparameters, step counts and generators.
        Raises IoError, Unsupported (a dtype that the format does not know), FailedPrecondition (a trace has
        that name), InvalidArgument (nothing lies below `of`)."""
        self._player.save_weights(os.fspath(path), of, everything)

    def load_weights(self, path: str | os.PathLike, *, of: str = "", strict: bool = True) -> None:
        """Takes the state from a file that save_weights, torch.save or safetensors wrote, for the steps from
        now on. strict: every parameter and module buffer must be in the file, and nothing else.
        Raises IoError, DataLoss, Unsupported; InvalidArgument that lists every name, dtype and shape that
        does not fit. Nothing is changed then."""
        self._player.load_weights(os.fspath(path), of, strict)

    def explain(self) -> str:
        """Steps, variants, plans, and in what this process differs from the recording one, in words."""
        return self._player.explain()


def load(path: str | os.PathLike, *, environment: str = "exact") -> Player:
    """Opens a trace file that Step.save or record wrote.

    environment: "exact" refuses a trace that was recorded with another torch, CPU capability, BLAS or
    thread count (Unsupported); "any" accepts it, and results may differ in their last bits.
    Raises IoError, DataLoss, Unsupported.
    """
    return Player(path, environment)


_PLACEHOLDERS = {"tensor", "float", "int", "bool"}


def _shape_of(text):
    """The structure of a result, from its text; a list of all tensors where there is none."""
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        return None


def _built(node, tensors, numbers):
    if node is None:
        return [*tensors, *numbers]
    if isinstance(node, ast.Name) and node.id in _PLACEHOLDERS:
        if node.id == "tensor":
            return next(tensors)
        return {"float": float, "int": int, "bool": bool}[node.id](next(numbers))
    if isinstance(node, ast.Tuple):
        return tuple(_built(item, tensors, numbers) for item in node.elts)
    if isinstance(node, ast.List):
        return [_built(item, tensors, numbers) for item in node.elts]
    if isinstance(node, ast.Dict):
        return {_built(key, tensors, numbers): _built(value, tensors, numbers)
                for key, value in zip(node.keys, node.values)}
    if isinstance(node, ast.Call):  # a class of the program's own: its fields
        return _built(node.args[0], tensors, numbers)
    return ast.literal_eval(node)
