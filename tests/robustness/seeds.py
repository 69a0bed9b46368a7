"""Models to begin with: what ONNX's own test cases have, small, of every operator."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import onnx

MOST_BYTES: Final = 30_000
"""Of a model and what is fed to it: mutations of large ones only take longer."""


class Seed(NamedTuple):
    """A valid model, and inputs for it.

    Attributes:
        name: what it is.
        model: the model; its external data is in *files*, by name.
        feeds: by the names of the inputs.
    """

    name: str
    model: onnx.ModelProto
    feeds: dict[str, Any]
    files: Mapping[str, bytes] = MappingProxyType({})


def node_seeds(modules: Sequence[str] | None = None) -> list[Seed]:
    """The cases of the ONNX backend suite that are one node and light.

    Args:
        modules: which of :mod:`onnx.backend.test.case.node` to look at, as each takes
            its time to compute what its cases expect; all if it is ``None``.
    """
    from onnx.backend.test.case import node as cases

    wanted = modules or [
        name
        for _, name, is_package in pkgutil.iter_modules(cases.__path__)
        if not is_package and not name.startswith("_")
    ]
    seeds: list[Seed] = []
    before = list(cases._NodeTestCases)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's own generators overflow
        for name in wanted:
            del cases._NodeTestCases[:]
            module = importlib.import_module(f"{cases.__name__}.{name}")
            if not cases._NodeTestCases:  # it was imported before
                _export(module)
            seeds.extend(_light(cases._NodeTestCases))
    cases._NodeTestCases[:] = before
    return seeds


def _export(module: Any) -> None:
    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            for name, function in vars(value).items():
                if name.startswith("export"):
                    getattr(value, name)() if function else None


def _light(cases: Sequence[Any]) -> Iterator[Seed]:
    for case in cases:
        if not case.data_sets:
            continue
        arrays = case.data_sets[0][0]
        names = [value.name for value in case.model.graph.input]
        size = case.model.ByteSize() + sum(
            array.nbytes for array in arrays if isinstance(array, np.ndarray)
        )
        if len(arrays) == len(names) and size <= MOST_BYTES:
            yield Seed(case.name, case.model, dict(zip(names, arrays, strict=True)))
