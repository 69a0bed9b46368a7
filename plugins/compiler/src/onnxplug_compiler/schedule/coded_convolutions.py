"""Records convolutions of which a factor, or both, are codes, with the chains behind
them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.frontend.fusion import Group
from onnxplug_compiler.frontend.patterns.quantised import are_of_quads
from onnxplug_compiler.ir.buffers import Constant
from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.elementwise import Chain
from onnxplug_compiler.ir.epilogue import Epilogue, epilogue
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.coded import as_shape, coded_products
from onnxplug_compiler.schedule.coded_images import (
    Surrounded,
    exact_windows,
    is_of_integers,
    of_floats,
    record_differences,
)
from onnxplug_compiler.schedule.elementwise import (
    Builder,
    Finish,
    label_of,
    operand_views,
    record_chain,
)
from onnxplug_compiler.schedule.operations.convolution import (
    Part,
    parts_over,
    plain_parts,
)
from onnxplug_compiler.schedule.operations.depthwise import Depthwise, record_depthwise
from onnxplug_compiler.schedule.operations.geometry import geometry_of
from onnxplug_compiler.schedule.operations.registry import F32, Plan, find_operation


class CodedConvolution(NamedTuple):
    """A convolution.

    Attributes:
        conv: the convolution alone.
        image: what is convolved, with one zero point, an array without axes.
        codes: the filters.
        zero, scale: zero points and scales of them, of their shape.
        offset: a zero point of all.
        whole: the filters with as many channels more as make a multiple of four, which
            are multiplied faster; ``None`` where there is none to be added, or too
            many.
        finish: what becomes of the sums, of operands that broadcast to the result.
    """

    conv: Call
    image: Factor
    codes: View
    zero: View | None = None
    offset: int = 0
    scale: View | None = None
    whole: View | None = None
    finish: Finish = Finish()

    @property
    def arrays(self) -> list[View]:
        """Those of the filters."""
        found = self.codes, self.zero, self.scale
        return [each for each in found if each is not None]

    @property
    def is_of_integers(self) -> bool:
        """Whether both factors are codes of a byte, and sums those of integers."""
        return self.scale is None and is_of_integers(
            (self.image.codes.view, self.codes)
        )

    @property
    def in_fours(self) -> CodedConvolution:
        """The same of filters with more channels, if there are such."""
        whole, zero = self.whole, self.zero
        if whole is None:
            return self
        if zero is not None:  # each filter has one
            zero = View(zero.buffer, zero.offset, zero.dtype, whole.shape, zero.strides)
        return self._replace(codes=whole, zero=zero, whole=None)

    def windows(self, plan: Plan, shape: tuple[int, ...]) -> list[Depthwise] | None:
        """The convolution as windows, if it may be some; *shape* is the result's."""
        if not self.is_of_integers:
            return None
        zeros = None if self.zero is None else Codes(self.zero)
        filters = Factor(Codes(self.codes), zeros, self.offset)
        return exact_windows(plan, self.conv, self.image, filters, shape)

    def is_in_groups(self, plan: Plan) -> bool:
        """Whether it is of groups of some channels, that are best multiplied as codes,
        as they are."""
        return (
            self.conv.attributes["group"] > 1
            and are_of_quads(self.codes.shape)
            and isinstance(self.codes.buffer, Constant)
            and coded_products(plan.recorder).takes_groups()
        )


def as_conv(call: Call, x: int, w: int) -> Call:
    """The convolution alone, of the inputs at these positions."""
    names = call.inputs[x], call.inputs[w]
    return Call(
        "Conv", "", call.version, names, call.outputs[:1], call.attributes, call.nodes,
        call.dtypes[:1],
    )  # fmt: skip


Maker: TypeAlias = Callable[[Plan, Call], CodedConvolution]

_I16: Final = np.dtype(np.int16)

_DTYPES: Final = {"f32": np.dtype(np.float32), "i32": np.dtype(np.int32)}
"""Of sums."""

CONVOLUTIONS: Final[dict[str, Maker]] = {}
"""What makes the convolution of a call, by its operator, as the registry names them."""


def record_coded_convolution(
    plan: Plan, call: Call, group: Group, outputs: Sequence[str]
) -> None:
    """Record the convolution *call* and the chain of *group* behind it, which write
    *outputs*."""
    result, dtype = call.outputs[0], call.dtypes[0]
    assert result is not None and dtype is not None
    find_operation(call)  # of one that a pattern made nobody has asked yet
    made = CONVOLUTIONS[call.op_type](plan, call)
    shape, finish = plan.known(result).shape, made.finish
    built = Builder(plan, group, call, finish).build(outputs)
    first = group.calls[0].outputs[0] if group.calls else result
    assert first is not None
    after_shape = plan.known(first).shape
    operands = [
        view.broadcast_to(shape if finish.reads(operand) else after_shape)
        for operand, view in zip(
            built.operands, operand_views(plan, built), strict=True
        )
    ]
    targets = [plan.destination(name) for name in outputs]
    label = label_of([call, *group.calls])
    whole = [view.reshape(shape) for view in (*operands, *targets)]
    views = [view for view in whole if view is not None]
    sums = finish.dtype_of_sums(dtype)
    if len(views) == len(whole):
        inputs, results = views[: len(operands)], views[len(operands) :]
        after = epilogue(built.chain, inputs, results)
        record_parts(plan, made, after, label)
        return
    tile = plan.recorder.channels_last(sums, shape)
    alone = Chain(built.chain.inputs[:1], (), (), (0,))
    record_parts(plan, made, epilogue(alone, [], [tile]), label)
    again = [as_shape(plan, view, after_shape) for view in (tile, *operands)]
    record_chain(plan, built.chain, again, targets, label)


def record_parts(
    plan: Plan, made: CodedConvolution, after: Epilogue, label: str
) -> None:
    """Record each contraction, or each part of windows, with its part of what becomes
    of the sums."""
    recorder, family = plan.recorder, coded_products(plan.recorder)
    shape, sums = after.outputs[0].shape, _DTYPES[after.chain.inputs[0]]
    if 0 in shape:
        return
    parts = _of_codes(plan, made, shape) if made.is_in_groups(plan) else None
    windows = None if parts else made.windows(plan, shape)
    if windows is not None:
        for each in windows:
            folded = of_floats(after.of(each.fold))
            out = recorder.temporary(F32, folded.outputs[0].shape)
            record_depthwise(recorder, each, out, folded, label)
        return
    for part, a, b in parts or _contractions(plan, made, shape):
        folded = after.of(part.fold)
        out = recorder.temporary(sums, folded.outputs[0].shape)
        family.record_coded(recorder, a, b, out, epilogue=folded, label=label)


_Contractions: TypeAlias = "list[tuple[Part, Factor, Factor]]"
"""With their factors."""


def _contractions(
    plan: Plan, made: CodedConvolution, shape: tuple[int, ...]
) -> _Contractions:
    """Of codes as they are, or of their differences from their zero points."""
    view, arrays = made.image.codes.view, made.arrays
    if not made.is_of_integers:
        parts = plain_parts(plan, made.conv, view, arrays, shape)
        return _with_factors(made, parts, lambda windows: Factor(Codes(windows)))
    found = _of_codes(plan, made, shape)
    if found is not None:
        return found
    wide = plan.recorder.ordered_like(view, view.shape, _I16)
    record_differences(plan.recorder, made.image, wide)
    parts = plain_parts(plan, made.conv, wide, arrays, shape)
    return _with_factors(made, parts, lambda windows: Factor(Codes(windows)))


def _of_codes(
    plan: Plan, made: CodedConvolution, shape: tuple[int, ...]
) -> _Contractions | None:
    """Of codes as they are, if they are best multiplied so; records what writes these
    where windows read them."""
    recorder, family = plan.recorder, coded_products(plan.recorder)
    view = made.image.codes.view
    geometry = geometry_of(made.conv, view.shape, made.codes.shape, shape)
    fours = made.in_fours
    for is_moved in (False, True):
        image = Surrounded(
            plan, made.image, geometry, fours.codes.shape[1], is_moved=is_moved
        )
        parts = parts_over(made.conv, image.padded, fours.arrays, geometry)
        found = _with_factors(fours, parts, image.factor)
        if all(family.reads_codes(recorder, a, b) for _, a, b in found):
            image.record()
            return found
    return None


def _with_factors(
    made: CodedConvolution,
    parts: Sequence[Sequence[Part]],
    of_a: Callable[[View], Factor],
) -> _Contractions:
    """Parts, of each array of the filters, with their factors."""
    found: _Contractions = []
    for part, *others in zip(*parts, strict=True):
        rest = iter(others)
        zero, scale = (
            None if each is None else next(rest).b for each in (made.zero, made.scale)
        )
        zeros = None if zero is None else Codes(zero)
        b = Factor(Codes(part.b), zeros, made.offset, scale)
        found.append((part, of_a(part.a), b))
    return found
