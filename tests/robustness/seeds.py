"""Models to begin with: what ONNX's own test cases have, small, of every operator."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import subprocess
import sys
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


def node_seeds(modules: Sequence[str] = ()) -> list[Seed]:
    """The cases of the ONNX backend suite that are one node and light.

    They are made in a process of their own: the suite collects what was imported, and
    would miss what was imported here.

    Args:
        modules: which of :mod:`onnx.backend.test.case.node` to look at, as each takes
            its time to compute what its cases expect; none stands for all.
    """
    done = subprocess.run(
        [sys.executable, __file__, *modules], stdout=subprocess.PIPE, check=True
    )
    return [
        Seed(name, onnx.load_from_string(content), feeds)
        for name, content, feeds in pickle.loads(done.stdout)
    ]


def _main(modules: Sequence[str]) -> None:
    from onnx.backend.test.case import node as cases

    wanted = modules or [
        name
        for _, name, is_package in pkgutil.iter_modules(cases.__path__)
        if not is_package and not name.startswith("_")
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's own generators overflow
        for name in wanted:
            importlib.import_module(f"{cases.__name__}.{name}")
    found = list(_light(cases._NodeTestCases))
    sys.stdout.buffer.write(pickle.dumps(found))


def _light(cases: Sequence[Any]) -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    for case in cases:
        if not case.data_sets:
            continue
        arrays = case.data_sets[0][0]
        names = [value.name for value in case.model.graph.input]
        size = case.model.ByteSize() + sum(
            array.nbytes for array in arrays if isinstance(array, np.ndarray)
        )
        if len(arrays) == len(names) and size <= MOST_BYTES:
            feeds = dict(zip(names, arrays, strict=True))
            yield case.name, case.model.SerializeToString(), feeds


if __name__ == "__main__":
    _main(sys.argv[1:])
