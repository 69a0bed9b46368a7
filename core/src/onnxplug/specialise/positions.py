"""Whether nodes compute each position of a dimension from that position alone.

If they do, the dimension may be made longer, and what comes of the positions that were
there before is the same.  It is proven node by node: of each value it is known along
which axis the positions are, or that it depends on nothing but how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final, TypeAlias

from onnxplug.authoring.bounds import OutOfBounds, normal_axis
from onnxplug.authoring.nodes import describe
from onnxplug.authoring.operators import having
from onnxplug.authoring.sizes import Size, names_in, product
from onnxplug.ep import DataType, Dimension
from onnxplug.graph import Graph
from onnxplug.shapes.facts import Content
from onnxplug.shapes.inference import infer_symbolically
from onnxplug.specialise.position_call import COUNT, Call, Mixed, is_multiple
from onnxplug.specialise.position_numbers import PositionNumbers

__all__ = ["Mixed", "axes_of_positions"]


def axes_of_positions(
    graph: Graph, inputs: Sequence[str], outputs: Sequence[str], dimension: str
) -> dict[str, int]:
    """The axis that *dimension* is in each input and output that has it.

    Args:
        graph: of types that follow from operators.

    Raises:
        Mixed: it is not proven that positions are computed by themselves.
    """
    found = {name: _whole_axis_in(graph, name, dimension) for name in inputs}
    contents = _contents(graph)
    without = _known_without(graph, inputs, dimension, contents)
    numbers = PositionNumbers(dimension, contents)
    states = {name: axis for name, axis in found.items() if axis is not None}
    for node in graph.nodes:
        call = Call(graph, node, states, dimension)
        if not call.depends:
            continue
        for name, state in zip(node.outputs, _states(call, numbers), strict=False):
            if not name or name in without:
                continue
            if state >= 0 and _axis_in(graph, name, dimension) != state:
                raise Mixed(
                    f"{describe(node)} makes {name!r} of shape "
                    f"{_listed(graph.value(name).shape)}, where {dimension!r} is not "
                    f"followed to axis {state}"
                )
            states[name] = state
    for name in outputs:
        numbers.check(name)
        if states.get(name, COUNT) >= 0:
            _whole_axis_in(graph, name, dimension)
        if states.get(name) == COUNT:
            raise Mixed(f"output {name!r} depends on the size of {dimension!r}")
    return {name: states[name] for name in (*inputs, *outputs) if name in states}


def _contents(graph: Graph) -> Mapping[str, Content | None]:
    """Elements of small tensors of sizes, where there are any."""
    if not any(node.op_type in ("Shape", "Size") for node in graph.nodes):
        return {}
    return infer_symbolically(graph)


def _known_without(
    graph: Graph,
    inputs: Sequence[str],
    dimension: str,
    contents: Mapping[str, Content | None],
) -> frozenset[str]:
    """Small tensors of sizes, such as a part of a Shape, that *dimension* is not in."""
    given = [size for name in inputs for size in graph.value(name).shape or ()]
    # of a name that only inference has nobody knows what it depends on
    others = {name for size in given for name in _names(size)} - {dimension}
    return frozenset(
        name
        for name, content in contents.items()
        if content is not None
        and all(
            isinstance(each, int)
            or (isinstance(each, Size) and names_in(each) <= others)
            for each in content.elements
        )
    )


def _whole_axis_in(graph: Graph, name: str, dimension: str) -> int | None:
    """The axis of a value that is *dimension*.

    Raises:
        Mixed: it is several, or another size is computed from it.
    """
    axis = _axis_in(graph, name, dimension)
    shape = graph.value(name).shape or ()
    if axis is not None and shape[axis] != dimension:
        raise Mixed(
            f"{name!r} has the shape {_listed(shape)}, in which {dimension!r} is not "
            "one dimension"
        )
    return axis


def _axis_in(graph: Graph, name: str, dimension: str) -> int | None:
    """The axis of a value that is *dimension*, or so many times as long: then each
    position has a stretch of it.

    Raises:
        Mixed: it is several, or another size is computed from it.
    """
    shape = graph.value(name).shape or ()
    axes = [axis for axis, size in enumerate(shape) if is_multiple(size, dimension)]
    mentions = [size for size in shape if dimension in _names(size)]
    if len(mentions) > 1 or len(mentions) != len(axes):
        raise Mixed(
            f"{name!r} has the shape {_listed(shape)}, in which {dimension!r} is not "
            "one dimension"
        )
    return axes[0] if axes else None


def _names(size: Dimension) -> set[str]:
    if not isinstance(size, str):
        return set()
    parsed = Size.parse(size)
    return {size} if parsed is None else names_in(parsed)


def _listed(shape: Sequence[Dimension] | None) -> str:
    return "that is not known" if shape is None else str(list(shape))


Rule: TypeAlias = Callable[[Call], int]
"""The state of the outputs of a node with an input that has one."""


def _states(call: Call, numbers: PositionNumbers) -> list[int]:
    node = call.node
    rule = _rule_of(call)
    try:
        found = numbers.state(call, rule)
        if found is not None:
            return [found] * len(node.outputs)
        # operators of before opset 7 broadcast, and train, by attributes
        if rule is None or node.subgraphs or call.graph.opset() < 7:
            raise Mixed("it may compute positions from each other")
        return [rule(call)] * len(node.outputs)
    except OutOfBounds as error:
        raise Mixed(f"{describe(node)}: {error}") from error
    except Mixed as error:
        raise Mixed(f"{describe(node)}: {error}") from None


def _rule_of(call: Call) -> Rule | None:
    node = call.node
    if not node.domain:
        return _RULES.get(node.op_type)
    from onnxplug import domains  # which few models need

    found = domains.find(call.graph, node)
    traits = () if found is None else found.operator.traits
    return next((rule for trait, rule in _OF_TRAITS.items() if trait in traits), None)


def _unless(condition: bool, why: str) -> None:
    if not condition:
        raise Mixed(why)


def _aligned(call: Call) -> int:
    """Operators that broadcast: positions are compared with positions."""
    if all(state in (COUNT, None) for state in call.states):
        return _counting(call)
    shapes = _shapes(call)
    _unless(COUNT not in call.states, "it computes with sizes")
    found = {
        state - len(shapes[position])
        for position in shapes
        if (state := call.state(position)) is not None
    }
    _unless(len(found) == 1, "it has positions along several axes")
    (from_end,) = found
    for position, shape in shapes.items():
        if call.state(position) is None and len(shape) >= -from_end:
            _unless(shape[from_end] == 1, f"its input {position} has no positions")
    return max(map(len, shapes.values())) + from_end


def _shapes(call: Call) -> dict[int, tuple[Dimension, ...]]:
    """The shapes of the inputs that are there, by position."""
    inputs = range(len(call.node.inputs))
    return {at: call.shape(at) for at in inputs if call.has(at)}


def _same(call: Call) -> int:
    """Operators that are element-wise in their first input."""
    if call.state(0) == COUNT:
        return _counting(call)
    call.only(0)
    return call.positions()


def _counting(call: Call) -> int:
    """What is computed of sizes is of sizes, as long as it is integers."""
    values = [call.graph.value(name) for name in call.node.outputs if name]
    _unless(
        all(state in (COUNT, None) for state in call.states)
        and all(value.dtype in _INTEGERS for value in values)
        and all(value.shape is not None and len(value.shape) < 2 for value in values),
        "it computes with sizes",
    )
    return COUNT


_INTEGERS: Final = frozenset({DataType.INT64, DataType.INT32})


def _sizes(call: Call) -> int:
    """Shape and Size."""
    return COUNT


def _without(axis: int, axes: Container[int]) -> int:
    _unless(axis not in axes, "it computes along it")
    return axis


def _softmax(call: Call) -> int:
    call.only(0)
    axis, rank = call.positions(), len(call.shape())
    if call.graph.opset() >= 13:
        return _without(axis, [call.axis(-1, rank)])
    return _without(axis, range(call.axis(1, rank), rank))


def _normalised(call: Call) -> int:
    """LayerNormalization and its kin, along the last axes."""
    call.only(0)
    axis, rank = call.positions(), len(call.shape())
    for position in (1, 2):  # scale and bias, which are broadcast
        shape = call.shape(position) if call.has(position) else ()
        if len(shape) >= rank - axis:
            _unless(shape[axis - rank] == 1, f"its input {position} has no positions")
    return _without(axis, range(call.axis(-1, rank), rank))


def _along_last(call: Call) -> int:
    """Operators along the last axis of what is broadcast."""
    return _without(_aligned(call), [max(map(len, _shapes(call).values())) - 1])


def _along(default: int) -> Rule:
    def rule(call: Call) -> int:
        call.only(0)
        rank = len(call.shape())
        return _without(call.positions(), [call.axis(default, rank)])

    return rule


def _first_axis(*inputs: int) -> Rule:
    """Operators of which the first axis is a batch, in the ONNX specification."""

    def rule(call: Call) -> int:
        call.only(*inputs)
        _unless(call.positions() == 0, "it computes along it")
        _unless(not call.attribute("training_mode", 0), "it trains")
        return 0

    return rule


def _matmul(call: Call) -> int:
    call.only(0, 1)
    shapes = call.shape(0), call.shape(1)
    ranks = len(shapes[0]), len(shapes[1])
    _unless(min(ranks) >= 2, "one of its inputs is a vector")
    _unless(COUNT not in call.states, "it computes with sizes")
    ends = {}
    for position in (0, 1):
        state = call.state(position)
        if state is not None:
            ends[position] = state - ranks[position]
    _unless(ends.get(0) != -1 and ends.get(1) != -2, "it adds up along it")
    if len(set(ends.values())) == 2 or (len(ends) == 2 and max(ends.values()) >= -2):
        raise Mixed("it has positions along several axes")
    (from_end,) = set(ends.values())
    if from_end < -2:
        for position in (0, 1):
            if position not in ends and ranks[position] >= -from_end:
                size = shapes[position][from_end]
                _unless(size == 1, f"its input {position} has no positions")
    return max(ranks) + from_end


def _gemm(call: Call) -> int:
    call.only(0)
    rows = 1 if call.attribute("transA", 0) else 0
    _unless(call.positions() == rows, "it adds up along it")
    if call.has(2):
        shape = call.shape(2)
        _unless(len(shape) < 2 or shape[0] == 1, "its input 2 has no positions")
    return 0


def _transpose(call: Call) -> int:
    rank = len(call.shape())
    order = call.attribute("perm", tuple(reversed(range(rank))))
    return [int(axis) for axis in order].index(call.positions())


def _reshaped(call: Call) -> int:
    """The axis before which there are as many elements as before."""
    if call.state(0) == COUNT:
        return _counting(call)
    _unless(call.state(1) in (COUNT, None), "its input 1 depends on positions")
    axis, shape = call.positions(), call.shape()
    name = call.node.outputs[0]
    new = None if name is None else call.graph.value(name).shape
    if new is None:
        raise Mixed("the shape that it gives is not known")
    _check_sizes(call, new)
    places = [at for at, size in enumerate(new) if is_multiple(size, call.dimension)]
    _unless(len(places) == 1, f"it gives the shape {list(new)}")
    before, after = _elements(shape[:axis]), _elements(new[: places[0]])
    _unless(before is not None and before == after, f"it gives the shape {list(new)}")
    return places[0]


def _elements(shape: Sequence[Dimension]) -> Any:
    sizes = [Size.parse(size) if isinstance(size, str) else size for size in shape]
    known = [size for size in sizes if size is not None]
    return product(known) if len(known) == len(sizes) else None


def _expand(call: Call) -> int:
    shape = call.shape()
    name = call.node.outputs[0]
    new = None if name is None else call.graph.value(name).shape
    if new is None or not name:
        raise Mixed("the shape that it gives is not known")
    _unless(call.state(1) in (COUNT, None), "its input 1 depends on positions")
    if call.state(0) is not None:
        _check_sizes(call, new)
        return len(new) - len(shape) + call.positions()
    return _filled(call, shape, new)


def _check_sizes(call: Call, new: Sequence[Dimension]) -> None:
    """Check that no axis gets a size that is computed of how many positions there are,
    in a way that is not followed.

    Raises:
        Mixed: one may.
    """
    if call.state(1) is None:
        return
    given = [call.graph.value(name).shape or () for name in call.graph.inputs]
    known = {
        name
        for shape in (call.shape(), *given)
        for each in shape
        for name in _names(each)
    }
    for size in new:
        _unless(
            isinstance(size, int) or _names(size) <= known,
            f"it gives the shape {list(new)}, of which {size!r} may depend on it",
        )


def _filled(call: Call, shape: Sequence[Dimension], new: Sequence[Dimension]) -> int:
    """The axis along which the same is repeated, when sizes say how often."""
    name = call.node.outputs[0]
    unknown = [
        axis
        for axis, size in enumerate(new)
        if isinstance(size, str)
        and (axis < len(new) - len(shape) or shape[axis - len(new)] == 1)
    ]
    _unless(len(unknown) == 1, f"it makes {name!r} of shape {list(new)}")
    return unknown[0]


def _constant_of_shape(call: Call) -> int:
    _unless(call.state(0) == COUNT, "its input depends on positions")
    name = call.node.outputs[0]
    new = None if name is None else call.graph.value(name).shape
    if new is None:
        raise Mixed("the shape that it gives is not known")
    return _filled(call, (), new)


def _concat(call: Call) -> int:
    if all(state in (COUNT, None) for state in call.states):
        return _counting(call)
    axes = set(call.states)
    _unless(len(axes) == 1 and COUNT not in axes, "not all its inputs have positions")
    (axis,) = axes
    assert axis is not None
    return _without(axis, [normal_axis(call.attribute("axis", 1), len(call.shape()))])


def _split(call: Call) -> int:
    if call.state(0) == COUNT:
        return _counting(call)
    call.only(0)
    return _without(call.positions(), [call.axis(0, len(call.shape()))])


def _slice(call: Call) -> int:
    if call.state(0) == COUNT:
        return _counting(call)
    call.only(0)
    axis = call.positions()
    if call.graph.opset() < 10:
        starts = call.attribute("starts")
        stated = call.attribute("axes")
    else:
        starts, stated = call.constant(1), call.constant(3)
        _unless(stated is not None or not call.has(3), "its axes are not known")
    if starts is None and stated is None:
        raise Mixed("its axes are not known")
    axes = range(len(starts)) if stated is None else stated
    rank = len(call.shape())
    return _without(axis, [normal_axis(int(each), rank) for each in axes])


def _gather(call: Call) -> int:
    if all(state in (COUNT, None) for state in call.states):
        return _counting(call)
    call.only(0, 1)
    _unless(COUNT not in call.states, "it computes with sizes")
    rank, indices = len(call.shape()), len(call.shape(1))
    along = call.axis(0, rank)
    if call.state(0) is None:
        return along + call.positions(1)
    _unless(call.state(1) is None, "it has positions along several axes")
    axis = _without(call.positions(), [along])
    return axis if axis < along else axis - 1 + indices


def _reduce(call: Call) -> int:
    call.only(0)
    axes = call.axes(1)
    if axes is None:
        is_nothing = call.attribute("noop_with_empty_axes", 0)
        axes = [] if is_nothing else list(range(len(call.shape())))
    elif not axes and not call.attribute("noop_with_empty_axes", 0):
        axes = list(range(len(call.shape())))
    axis = _without(call.positions(), axes)
    if call.attribute("keepdims", 1):
        return axis
    return axis - sum(each < axis for each in axes)


def _arg(call: Call) -> int:
    call.only(0)
    along = call.axis(0, len(call.shape()))
    axis = _without(call.positions(), [along])
    return axis if call.attribute("keepdims", 1) else axis - (along < axis)


def _pad(call: Call) -> int:
    call.only(0)
    axis, rank = call.positions(), len(call.shape())
    _unless(not call.has(3), "it names axes")
    pads = call.attribute("pads")
    pads = call.constant(1) if pads is None else pads
    if pads is None or len(pads) != 2 * rank:
        raise Mixed("its pads are not known")
    _unless(pads[axis] == 0 == pads[axis + rank], "it pads it")
    return axis


def _dropout(call: Call) -> int:
    call.only(0)
    _unless(not call.has(2), "it may train")
    return call.positions()


def _quantized(call: Call) -> int:
    """QuantizeLinear and DequantizeLinear, with a scale that is none of positions."""
    call.only(0)
    axis = call.positions()
    shape = call.shape(1)
    if len(shape) == 1 and shape[0] != 1:
        return _without(axis, [call.axis(1, len(call.shape()))])
    _unless(len(shape) < 2, "its scales are of blocks")
    return axis


_BATCHES: Final = (
    "AveragePool BatchNormalization Conv ConvTranspose DepthToSpace GlobalAveragePool "
    "GlobalLpPool GlobalMaxPool GroupNormalization InstanceNormalization LpPool "
    "MaxPool SpaceToDepth"
).split()

_RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(having("unary"), _same),
    **dict.fromkeys(having("broadcast"), _aligned),
    **dict.fromkeys(having("reduction"), _reduce),
    **dict.fromkeys(_BATCHES, _first_axis(0)),
    **dict.fromkeys(having("softmax"), _softmax),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _normalised),
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg),
    **dict.fromkeys(having("reshapes"), _reshaped),
    **dict.fromkeys(having("shape_only"), _sizes),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantized),
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Dropout": _dropout,
    "Expand": _expand,
    "Gather": _gather,
    "Gemm": _gemm,
    "LpNormalization": _along(-1),
    "MatMul": _matmul,
    "Pad": _pad,
    "Slice": _slice,
    "Split": _split,
    "Transpose": _transpose,
}
"""Operators of ONNX of which it is known what they do to positions."""

_OF_TRAITS: Final[dict[str, Rule]] = {
    "unary": _same,
    "broadcast": _aligned,
    "last_axis": _along_last,
}
"""The same of operators that others supply, by their traits."""
