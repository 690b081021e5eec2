"""Traces replayed without the model's code."""
import ast
import importlib
import itertools
import os
from typing import Any

import torch

from . import _engine
from ._errors import Unsupported


class LoadedStep:
    """A step of a trace: called with the tensors that the recorded step was called with."""

    def __init__(self, player, name):
        self._step = player.step(name)
        self.name = name
        # by their texts, since variants may return other structures; none for a step of C++
        self._shapes = {text: _shape_of(text, name) for text in self._step.structures() if text}

    def __call__(self, *inputs: torch.Tensor) -> Any:
        """Runs the step: the player's state moves on, and the results come back as they stood in what the
        recorded function returned. Raises FailedPrecondition with the verdict, nothing changed, when a
        guard does not hold."""
        tensors, numbers = self._step.run(list(inputs))
        shape = self._shapes.get(self._step.structure())
        return [*tensors, *numbers] if shape is None else shape.built(tensors, numbers)

    def check(self, *inputs: torch.Tensor) -> str | None:
        """Why a call with these tensors would not hold: "inputs[0].size(0): 64 → 17"; None when it would."""
        return self._step.check(list(inputs))

    def inputs(self) -> list[dict]:
        """The tensors it takes: a list of dicts (path, dtype, sizes). What it leaves for its next call, such as a
        hidden state, is the player's."""
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
        """The step of this name. Raises InvalidArgument, which lists the steps there are; Unsupported where its
        results held something that a trace does not keep, such as a class or a function."""
        if name not in self._steps:
            self._steps[name] = LoadedStep(self._player, name)
        return self._steps[name]

    def tensor(self, path: str) -> torch.Tensor:
        """A parameter, module buffer or state tensor by its path; shares the player's memory, that of a tensor which a step
        leaves for its next call ("s.h") until then."""
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
        in ".safetensors", else a state dict, which torch.load(path, weights_only=True) reads. Buffers that are not
        persistent are left out, as state_dict() does.

        of: a tracked name; the names in the file begin after it. of="model" makes those of
        model.state_dict(); without it they are as recorded, "model.fc1.weight".
        everything: also optimizer state, hyperparameters, step counts, generators and buffers that are not persistent.
        Raises IoError, Unsupported (a dtype that the format does not know), FailedPrecondition (a trace has
        that name), InvalidArgument (nothing lies below `of`)."""
        self._player.save_weights(os.fspath(path), of, everything)

    def load_weights(self, path: str | os.PathLike, *, of: str = "", strict: bool = True) -> None:
        """Takes the state from a file that save_weights, torch.save or safetensors wrote, for the steps from
        now on. strict: every parameter and persistent buffer must be in the file, and nothing that has no place.
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


class _Shape:
    """How the results of a variant stood in what its function returned, from the engine's text of it."""

    def __init__(self, text):
        """Raises ValueError or SyntaxError where the text does not say how to make something."""
        self._node = ast.parse(text, mode="eval").body
        self.built(itertools.repeat(None), itertools.repeat(0.0))

    def built(self, tensors, numbers):
        self._tensors, self._numbers = iter(tensors), iter(numbers)
        self._met = []  # lists, dicts and such, as each was complete
        return self._built(self._node)

    def _built(self, node):
        match node:
            case ast.Name("tensor"):
                return next(self._tensors)
            case ast.Name("float" | "int" | "bool" as kind):
                return {"float": float, "int": int, "bool": bool}[kind](next(self._numbers))
            case ast.Attribute(ast.Name("numpy"), "float64"):
                return importlib.import_module("numpy").float64(next(self._numbers))
            case ast.Attribute(ast.Name("numpy"), "ndarray"):
                tensor = next(self._tensors)
                made = None if tensor is None else tensor.numpy()
            case ast.Name("Ellipsis"):
                return ...
            case ast.Subscript(ast.Name("same"), ast.Constant(position)):
                return self._met[position]
            case ast.Attribute(ast.Name("torch"), name):
                return getattr(torch, name)
            case ast.Call(ast.Name("complex"), [real, imaginary]):
                return complex(ast.literal_eval(real), ast.literal_eval(imaginary))
            case ast.Call(ast.Name("device"), [], words):
                return torch.device(":".join(str(word.value.value) for word in words))
            case ast.Call(ast.Attribute(ast.Name("torch"), "Size"), [sizes]):
                return torch.Size(ast.literal_eval(sizes))
            case ast.Tuple(items):
                made = tuple(self._built(item) for item in items)
                # the engine counts those alone that a replay makes anew
                if not any(_is_made_anew(part) for part in ast.walk(node)):
                    return made
            case ast.List(items):
                made = [self._built(item) for item in items]
            case ast.Dict(keys, values):
                made = {self._built(key): self._built(value) for key, value in zip(keys, values)}
            case ast.Call(_, [ast.Dict() as fields]):  # a class of the program's own
                return self._built(fields)
            case _:
                return ast.literal_eval(node)
        self._met.append(made)
        return made


def _is_made_anew(node):
    return getattr(node, "id", "") == "tensor" or getattr(node, "attr", "") == "ndarray"


def _shape_of(text, name):
    try:
        return _Shape(text)
    except (SyntaxError, ValueError, LookupError):
        raise Unsupported(
            f"step {name} returned {text}, of which a trace keeps no more than these words: return tensors, numbers, "
            "texts, and lists, tuples and dicts of them") from None
