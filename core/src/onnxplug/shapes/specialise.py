"""What a part of a graph is where the shapes of its inputs are numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnxplug.authoring.bounds import MOST_ELEMENTS
from onnxplug.ep import DataType, TensorType, ValueType, named_sizes
from onnxplug.graph import Graph, Node
from onnxplug.graph.part import part_of
from onnxplug.shapes.inference import infer_symbolically
from onnxplug.shapes.stated import (
    Contradiction,
    is_known,
    merged,
    with_sizes,
    without_names,
    without_shapes,
)

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]


def specialised(
    source: Graph,
    members: Sequence[Node],
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    shapes: Shapes,
) -> Graph:
    """Copies of *members* as a graph whose types are as static as follows.

    What does not follow from operators is as *source* states it, with sizes in place
    of the names that the inputs' shapes tell.  In bodies names may mean another size
    each time, so of these only numbers are believed.

    Args:
        members: nodes of *source*, in topological order.
        inputs, outputs: what they are given, and what is wanted of them.
        shapes: of inputs that are dense tensors; others stay as they are.

    Raises:
        InvalidModel: a node cannot run with these shapes; the error names it.
    """
    before = {name: source.value(name).type for name in inputs}
    sizes = named_sizes(before.values(), map(shapes.get, before))
    types: dict[str, ValueType | None] = {}
    for name, type in before.items():
        if name in shapes:
            types[name] = TensorType(_dtype(type), shapes[name])
        else:
            types[name] = with_sizes(type, sizes)
    stated = {
        name: with_sizes(source.types.get(name), sizes)
        for node in members
        for name in node.outputs
        if name
    }
    # what a model declares of its outputs is kept there, right or wrong
    kept = frozenset(source.outputs) if source.parent is None else frozenset()
    types |= {
        name: without_shapes(type) if name in kept else type
        for name, type in stated.items()
        if type is not None
    }
    part = part_of(source, members, inputs=inputs, types=types, retyped=without_names)
    infer_symbolically(part)
    for name in kept & stated.keys():
        if not is_known(part.types.get(name)):
            part.types[name] = _completed(part.types.get(name), stated[name])
    part.outputs = list(outputs)
    return part


def _dtype(type: ValueType | None) -> DataType | None:
    return type.dtype if isinstance(type, TensorType) else None


def _completed(found: ValueType | None, stated: ValueType | None) -> ValueType | None:
    try:
        return merged(found, stated)
    except Contradiction:
        return found


def check_shapes(types: Mapping[str, ValueType | None], shapes: Shapes) -> None:
    """Check that values of *types* can have *shapes*.

    Raises:
        ValueError: a name is none of theirs, or of no dense tensor; or a shape has
            another rank, another size than one that is fixed, or a size that no tensor
            has.
    """
    for name, shape in shapes.items():
        if name not in types:
            raise ValueError(
                f"there is no input {name!r}; the inputs are "
                f"{', '.join(map(repr, types)) or 'none'}"
            )
        type = types[name]
        if type is not None and not isinstance(type, TensorType):
            raise ValueError(
                f"input {name!r} is {type}, which has no shape; leave it out"
            )
        for size in shape:
            if not isinstance(size, int) or not 0 <= size <= MOST_ELEMENTS:
                raise ValueError(
                    f"input {name!r} is given the shape {list(shape)}; expected whole "
                    "numbers from 0"
                )
        stated = None if type is None else type.shape
        if stated is None:
            continue
        if len(stated) != len(shape):
            raise ValueError(
                f"input {name!r} is given the shape {list(shape)} of rank "
                f"{len(shape)}; it has rank {len(stated)}: {list(stated)}"
            )
        for axis, (size, fixed) in enumerate(zip(shape, stated, strict=True)):
            if isinstance(fixed, int) and size != fixed:
                raise ValueError(
                    f"input {name!r} is given the shape {list(shape)}, with {size} at "
                    f"axis {axis}; its size there is fixed, {fixed}"
                )
