"""What EPs get wrong at edges, tried of each operator, and not left to chance.

An axis that is counted from the end and is not the last, several axes in any order,
sizes of 1 among others, the ends of whole numbers where these are compared, large
fractions, more elements than a block of threads has and more inputs than one launch
takes, inputs that are left out, padding that is not the same at both ends, groups of
channels; and each type that numbers are cast to.  Whether ONNX allows what comes out is
for those to say that compute it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, defs, helper

from onnxplug_testing.conformance.mutation import SIZING
from onnxplug_testing.measuring.variations import Variation, element_types

_SEVERAL: Final = 12
"""Cases of an operator that edges are made of."""

_MANY: Final = 1037
"""Elements at least, and no multiple of what blocks have."""

_COMPARING: Final = frozenset(
    {
        "ArgMax", "ArgMin", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual",
        "Max", "Min", "ReduceMax", "ReduceMin", "Relu", "Sign", "TopK",
    }
)  # fmt: skip
"""Operators whose results are defined for any whole numbers, as nothing overflows."""

_FRACTIONS: Final = (0.25, 1.5, 0.0, 0.75, 2.0, 3.25, 7.0, 0.5)
"""What casts to whole numbers round towards zero; none is undefined."""

_LARGE: Final = 100
"""Times what suites are made of, whose exponential is no number of float32."""

_INPUTS: Final = (9, 17)
"""Of operators that take any number."""

_CHANNELS: Final = 4

_OF_AXES: Final = frozenset({"axis", "axes"})

_FRACTIONAL: Final = frozenset({"float16", "bfloat16", "float32", "float64"})

_SIGNED: Final = (-0.25, 1.5, 0.0, -0.75, -2.0, 3.25, 7.0, -0.5)

_FLOATS: Final = (
    TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16,
)  # fmt: skip
_INTEGERS: Final = (
    TensorProto.INT64, TensorProto.INT32, TensorProto.INT16, TensorProto.INT8,
)  # fmt: skip
_TARGETS: Final = (
    TensorProto.BOOL, *_INTEGERS, TensorProto.STRING, *_FLOATS,
    TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64,
    TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2,
)  # fmt: skip


def edges(cases: Sequence[Variation]) -> Iterator[Variation]:
    """What is made of the first *cases* of an operator, each way in turn."""
    ways = [
        _in_turn([make(case) for case in cases[:_SEVERAL]])
        for make in (_axis, _axes, _broadcast, _ends, _many, _large, *_OF_SCHEMAS)
    ]
    for made in _in_turn(ways):
        yield replace(made, kind="edge", expected=None)


def _in_turn(sources: Sequence[Iterator[Variation]]) -> Iterator[Variation]:
    """One of each, as long as there are any."""
    left = list(sources)
    while left:
        for source in list(left):
            made = next(source, None)
            if made is None:
                left.remove(source)
            else:
                yield made


def targets(cases: Sequence[Variation]) -> Iterator[Variation]:
    """Casts of fractions to each type of numbers."""
    if not cases or cases[0].node.op_type != "Cast":
        return
    known = defs.get_schema("Cast", cases[0].opset, "")
    (allowed,) = (
        set(each.allowed_type_strs)
        for each in known.type_constraints
        if each.type_param_str == "T2"
    )
    for target in _TARGETS:
        name = TensorProto.DataType.Name(target).lower()
        if f"tensor({name})" not in allowed:
            continue
        numbers = _SIGNED if target in (*_FLOATS, *_INTEGERS) else _FRACTIONS
        x = np.array(numbers, np.float32).reshape(2, 4)
        yield Variation(
            case=f"a cast to {name}",
            kind="target",
            node=helper.make_node("Cast", ["x"], ["y"], to=target),
            since=known.since_version,
            opset=cases[0].opset,
            inputs=(x,),
            output_types=(target,),
        )


def _data(case: Variation) -> list[int]:
    """Positions of inputs that are data, and no lists of sizes or axes."""
    if case.node.op_type in SIZING:
        return []
    return [
        position
        for position, array in enumerate(case.inputs)
        if array is not None and position not in case.lists()
    ]


def _with(case: Variation, inputs: dict[int, Any], **attributes: Any) -> Variation:
    """*case* with others of its inputs and attributes."""
    arrays = [inputs.get(place, array) for place, array in enumerate(case.inputs)]
    return replace(case.with_attributes(**attributes), inputs=tuple(arrays))


def counts_from_the_end(schema: defs.OpSchema, name: str) -> bool:
    """Whether an attribute is declared to be an axis, or some, and may be negative."""
    declared = schema.attributes.get(name) if name in _OF_AXES else None
    words = "" if declared is None else declared.description.lower()
    return "negative" in words or "[-r" in words


def _axis(case: Variation) -> Iterator[Variation]:
    """The axis before the last, counted from the end: it is not the last, and -1 is."""
    schema = defs.get_schema(case.node.op_type, case.opset, case.node.domain)
    first = case.inputs[0] if case.inputs else None
    if first is not None and first.ndim > 1 and counts_from_the_end(schema, "axis"):
        yield _with(case, {}, axis=-2)


def _axes(case: Variation) -> Iterator[Variation]:
    """Several axes, in any order, of which none stays, and all do."""
    schema = defs.get_schema(case.node.op_type, case.opset, case.node.domain)
    first = case.inputs[0] if case.inputs else None
    if first is None or first.ndim < 2 or "keepdims" not in schema.attributes:
        return
    places = [
        place
        for place, formal in enumerate(schema.inputs)
        if formal.name == "axes" and place < len(case.inputs)
    ]
    last = first.ndim - 1
    for axes in ([0, last], [last, 0], [-1, -2], list(range(first.ndim))):
        for keeps in (0, 1):
            if places and case.inputs[places[0]] is not None:
                given = {places[0]: np.array(axes, np.int64)}
                yield _with(case, given, keepdims=keeps)
            elif "axes" in schema.attributes:
                yield _with(case, {}, keepdims=keeps, axes=axes)


def _broadcast(case: Variation) -> Iterator[Variation]:
    """Each axis of each input, where there are several, of size 1."""
    data = _data(case)
    for place in data[::-1] if len(data) > 1 else ():
        array = case.inputs[place]
        for axis in reversed(range(array.ndim)):
            if array.shape[axis] > 1:
                yield _with(case, {place: array.take([0], axis)})
        if array.ndim > 1:
            yield _with(case, {place: array.reshape(-1)[:1]})


def _ends(case: Variation) -> Iterator[Variation]:
    """The largest and smallest whole numbers, and those around 0, each with each."""
    if case.node.op_type not in _COMPARING or case.inputs[0] is None:
        return
    typed_so = [each for each in element_types(case) if _is_whole(each)]
    # the types that most have come first
    for typed in sorted(typed_so, key=lambda each: -each.inputs[0].dtype.itemsize):
        dtype = typed.inputs[0].dtype
        info = np.iinfo(dtype)
        ends = [info.max, info.min, 1, info.max - 1, 0, info.min + 1]
        given = {
            place: np.resize(np.roll(np.array(ends, dtype), turn), array.shape)
            for turn, place in enumerate(_data(typed))
            if (array := typed.inputs[place]).dtype == dtype
        }
        yield _with(typed, given)


def _is_whole(case: Variation) -> bool:
    return case.inputs[0].dtype.kind in "iu"


def _many(case: Variation) -> Iterator[Variation]:
    """More elements, where all data has one shape."""
    data = _data(case)
    shapes = {case.inputs[place].shape for place in data}
    if len(shapes) != 1 or not (shape := shapes.pop()) or 0 in shape:
        return
    rest = int(np.prod(shape[:-1]))
    wide = (*shape[:-1], (_MANY // rest) | 1)
    yield _with(case, {place: np.resize(case.inputs[place], wide) for place in data})


def _large(case: Variation) -> Iterator[Variation]:
    """Numbers of which some functions overflow, and others are at their limit."""
    given = {
        place: (array * np.array(_LARGE, array.dtype)).astype(array.dtype)
        for place in _data(case)
        if (array := case.inputs[place]).dtype.name in _FRACTIONAL
    }
    if given:
        yield _with(case, given)


def _many_inputs(case: Variation) -> Iterator[Variation]:
    """More inputs, where there may be any number."""
    schema = defs.get_schema(case.node.op_type, case.opset, case.node.domain)
    last = schema.inputs[-1] if schema.inputs else None
    place = len(schema.inputs) - 1
    is_variadic = (
        last is not None and last.option == defs.OpSchema.FormalParameterOption.Variadic
    )
    if not is_variadic or place >= len(case.inputs) or case.inputs[place] is None:
        return
    for count in _INPUTS:
        node = onnx.NodeProto()
        node.CopyFrom(case.node)
        del node.input[place:]
        node.input.extend(f"input_{number}" for number in range(place, count))
        turned = [
            np.roll(case.inputs[place], number) for number in range(count - place)
        ]
        inputs = (*case.inputs[:place], *turned)
        yield replace(case, node=node, inputs=inputs)


def _left_out(case: Variation) -> Iterator[Variation]:
    """Without each of the inputs that may be left out, those behind it given."""
    schema = defs.get_schema(case.node.op_type, case.opset, case.node.domain)
    for place, formal in enumerate(schema.inputs):
        if (
            formal.option != defs.OpSchema.FormalParameterOption.Optional
            or place >= len(case.inputs)
        ):
            continue
        if case.inputs[place] is None:
            continue
        node = onnx.NodeProto()
        node.CopyFrom(case.node)
        node.input[place] = ""
        inputs = [None if p == place else a for p, a in enumerate(case.inputs)]
        while inputs and inputs[-1] is None:
            inputs.pop()
        del node.input[len(inputs) :]
        if inputs:
            yield replace(case, node=node, inputs=tuple(inputs))


def _pads(case: Variation) -> Iterator[Variation]:
    """Padding of images before and behind, that is not the same."""
    schema = defs.get_schema(case.node.op_type, case.opset, case.node.domain)
    first = case.inputs[0] if case.inputs else None
    if not {"pads", "auto_pad"} <= schema.attributes.keys() or first is None:
        return
    axes = first.ndim - 2
    for before, behind in ((1, 0), (0, 1), (2, 1)):
        pads = [before] * axes + [behind] * axes
        yield _with(case, {}, auto_pad="NOTSET", pads=pads)
    if axes > 1:
        pads = [1, *[0] * (axes - 1), 0, *[1] * (axes - 1)]
        yield _with(case, {}, auto_pad="NOTSET", pads=pads)


def _groups(case: Variation) -> Iterator[Variation]:
    """Channels in groups, as many or fewer than there are, with several results of
    each."""
    schema = defs.get_schema(case.node.op_type, case.opset, case.node.domain)
    names = [formal.name.lower() for formal in schema.inputs]
    if "group" not in schema.attributes or names[:2] != ["x", "w"]:
        return
    x, w = case.inputs[:2]
    numbers = np.random.default_rng(0)
    for group, of_each in ((_CHANNELS, 2), (_CHANNELS // 2, 3)):
        inside = _CHANNELS // group
        # the weights of a transposed convolution have its inputs first
        turned = case.node.op_type == "ConvTranspose"
        first, second = (_CHANNELS, of_each) if turned else (group * of_each, inside)
        given = {
            0: _drawn(numbers, (x.shape[0], _CHANNELS, *x.shape[2:]), x.dtype),
            1: _drawn(numbers, (first, second, *w.shape[2:]), w.dtype),
        }
        if len(case.inputs) > 2 and names[2] == "b" and case.inputs[2] is not None:
            dtype = case.inputs[2].dtype
            given[2] = _drawn(numbers, (group * of_each,), dtype)
        yield _with(case, given, group=group)


def _drawn(
    numbers: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Any:
    low = 0 if dtype.kind == "u" else -4
    return numbers.integers(low, 5, shape).astype(dtype)


_OF_SCHEMAS: Final = (_many_inputs, _left_out, _pads, _groups)
"""What the declaration of an operator says that it may have."""
