"""Caches of keys and values that are codes, with scales.

A score is the sum of products with keys, so the scale of a channel is multiplied with
the query before, and that of a value with the result behind: attention reads codes.

Source: com.microsoft.GroupQueryAttention of ONNX Runtime 1.32, "Quantization".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.schedule.operations.registry import F32, Dtypes

if TYPE_CHECKING:
    from onnxplug_compiler.ir.recorder import Recorder
    from onnxplug_compiler.ir.target import Support, Target
    from onnxplug_compiler.ir.views import View

SCALES: Final = (12, 13)
"""Inputs that are the scales of keys and values."""

_CODES: Final = {8: np.dtype(np.int8), 4: np.dtype(np.uint8)}
"""What caches are, by the bits of a code; of 4 bits a byte has two, the lower first,
larger by 8."""


def bits_of(call: Call) -> int:
    """Of a code in the caches of *call*; 0 if they are floats."""
    kinds = {call.attributes.get(f"{which}_quant_type", "NONE") for which in "kv"}
    return 0 if kinds == {"NONE"} else int(call.attributes["kv_cache_bit_width"])


def dtype_of(bits: int) -> np.dtype[Any]:
    """Of a cache with codes of so many bits."""
    return _CODES[bits]


def width_of(size: int, bits: int) -> int:
    """Elements of a row of a cache that has heads of *size*."""
    return size * bits // 8 if bits else size


def why_not(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    """Why caches of codes, or what belongs to them, are not compiled."""
    name, attributes = call.op_type, call.attributes
    kinds = [attributes.get(f"{which}_quant_type", "NONE") for which in "kv"]
    given = [call.input(at) is not None for at in SCALES]
    width = int(attributes.get("kv_cache_bit_width", 0))
    if kinds == ["NONE", "NONE"]:
        if any(given) or width:
            return f"{name} has scales or bits of a cache that is not quantized"
        return None
    if not all(given) or "NONE" in kinds:
        return f"{name} is compiled with codes of both keys and values"
    if width not in target.bits_of_caches:
        return f"{name} is not compiled with codes of {width} bits in its cache"
    found = [dtypes[at] for at in (3, 4)]
    if any(dtype not in (None, _CODES[width]) for dtype in found):
        return f"{name} has caches of {found[0]} for codes of {width} bits"
    if any(dtypes[at] != F32 for at in SCALES):
        return f"{name} is compiled with scales of float32"
    return None


def check_scales(
    call: Call, shapes: Sequence[tuple[int, ...] | None], groups: int, size: int
) -> None:
    """Check that scales are one for all, or one for each channel of heads.

    Raises:
        NotCompiled: they are not, or a row is no whole number of bytes.
    """
    bits = bits_of(call)
    if not bits:
        return
    if size * bits % 8:
        raise NotCompiled(f"{size} codes of {bits} bits share bytes with others", call)
    for which, at in zip("kv", SCALES, strict=True):
        channels = call.attributes[f"{which}_quant_type"] == "PER_CHANNEL"
        wanted = [(1, groups, 1, size)] if channels else [(), (1,), (1, 1, 1, 1)]
        if shapes[at] not in wanted:
            raise NotCompiled(f"scales of {shapes[at]}; expected {wanted[-1]}", call)


def record_codes(
    recorder: Recorder[Target], rows: View, scale: View, bits: int, label: str
) -> View:
    """The codes, or bytes of two, of rows [batch, groups, rows, size], as float32."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    formula = Formula("f32")
    scales = _of_channels(scale, rows.shape)

    def code(first: int, step: int) -> Any:
        """Of every so many channels."""
        parts = [_every(view, first, step) for view in (rows, scales)]
        value = formula.step("Div", *map(formula.read, parts))
        value = formula.step("Round", value)
        value = formula.step("Max", value, formula.number(low))
        return formula.step("Min", value, formula.number(high))

    if bits == 8:
        out = recorder.temporary(F32, rows.shape)
        formula.record(recorder, code(0, 1), out, label)
        return out
    out = recorder.temporary(F32, (*rows.shape[:3], rows.shape[3] // 2))
    first, second = (
        formula.step("Add", code(n, 2), formula.number(-low)) for n in range(2)
    )
    high_part = formula.step("Mul", second, formula.number(1 << bits))
    formula.record(recorder, formula.step("Add", first, high_part), out, label)
    return out


def record_scaled(
    recorder: Recorder[Target], x: View, scale: View, groups: int, out: View, label: str
) -> None:
    """Multiply heads [batch, heads, rows, size], some of which share a group, with the
    scales of their groups' channels."""
    batch, heads, rows, size = x.shape
    shape = (batch, groups, heads // groups, rows, size)
    apart = [view.reshape(shape) for view in (x, out)]
    source, target = apart
    assert source is not None and target is not None, "an axis becomes two"
    if scale.size == 1:
        scales = _of_channels(scale, shape)
    else:
        channels = scale.reshape((groups, 1, 1, size))
        assert channels is not None, "axes of one"
        scales = channels.broadcast_to(shape)
    formula = Formula("f32")
    value = formula.step("Mul", formula.read(source), formula.read(scales))
    formula.record(recorder, value, target, label)


def _of_channels(scale: View, shape: tuple[int, ...]) -> View:
    """Scales, repeated."""
    if scale.size == 1:
        scale = scale.reshape(()) or scale
    return scale.broadcast_to(shape)


def _every(view: View, first: int, step: int) -> View:
    sizes = [*view.shape[:3], view.shape[3] // step]
    return view.slice((0, 0, 0, first), sizes, (1, 1, 1, step))
