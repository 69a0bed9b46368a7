"""Fixes sizes of inputs by what their dimensions denote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from onnxplug.ep import TensorType
from onnxplug.errors import OptionError
from onnxplug.graph import Graph
from onnxplug.graph.denotations import read_denotations
from onnxplug.prepare.infer import fix_free_dimensions
from onnxplug.suggest import did_you_mean


def fix_denoted_dimensions(
    graph: Graph, source: str | memoryview, sizes: Mapping[str, int]
) -> None:
    """Give the dimensions of inputs that denote a key of *sizes* its size.

    Where such a dimension has a name, the name stands for that size everywhere.

    Args:
        source: where *graph* was loaded from.

    Raises:
        OptionError: no input has a dimension that denotes so, or one has another size.
    """
    denoted = read_denotations(source)
    known = sorted({*denoted.values()})
    for denotation, size in sizes.items():
        places = [place for place, what in denoted.items() if what == denotation]
        if not places:
            raise OptionError(
                f"no dimension of the model's inputs denotes {denotation!r}"
                f"{did_you_mean(denotation, known)}; what they denote is "
                f"{', '.join(map(repr, known)) or 'nothing'}"
            )
        for name, axis in places:
            _fix(graph, name, axis, denotation, size)


def _fix(graph: Graph, name: str, axis: int, denotation: str, size: int) -> None:
    type = graph.types.get(name)
    if not isinstance(type, TensorType) or type.shape is None:
        return
    found = type.shape[axis]
    if isinstance(found, str):
        fix_free_dimensions(graph, {found: size})
    elif found is None:
        shape = (*type.shape[:axis], size, *type.shape[axis + 1 :])
        graph.types[name] = replace(type, shape=shape)
    elif found != size:
        raise OptionError(
            f"dimension {axis} of input {name!r}, which denotes {denotation!r}, is "
            f"given size {size}; the model says {found}"
        )
