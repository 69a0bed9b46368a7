"""Elements that become others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from onnxplug_compiler.gpu.render import doubles, minifloats, pairs, wide_steps
from onnxplug_compiler.gpu.render.body import KINDS, PACKED, PAIRED, WIDTHS, Body
from onnxplug_compiler.gpu.render.minifloats import MINIFLOATS, POWERS
from onnxplug_compiler.gpu.render.narrow import NARROW, rounded
from onnxplug_compiler.ir.elements import SUB_BYTE

_CAST: Final = frozenset(KINDS) - PACKED.keys() | PAIRED
_EXACT: Final = frozenset({"f32", "f64"}) | NARROW | MINIFLOATS | WIDTHS.keys() | {"i1"}
"""Elements all of whose values float32 has, too, or rounds to odd."""


def supports(source: str, target: str, attributes: Mapping[str, Any]) -> bool:
    """Whether a cast is computed; attributes as of ONNX's Cast."""
    if not {source, target} <= _CAST:
        return False
    if target != POWERS:
        return True
    modes = "up", "down", "nearest"
    # of others the last bits of what is rounded up are lost
    return source in _EXACT and attributes.get("round_mode", "up") in modes


def cast(
    body: Body, x: Any, source: str, target: str, attributes: Mapping[str, Any]
) -> Any:
    """As numpy: floats towards zero, integers wrapped; but floats to nearest even where
    integers have fewer than 8 bits, as ONNX has it."""
    if source == target:
        return x
    if source in MINIFLOATS:
        source = "f32"
    if target in MINIFLOATS:
        if source == "f64":
            x = doubles.to_odd(body, x)
        else:
            x = _converted(body, x, source, "f32")
        saturates = bool(attributes.get("saturate", 1))
        if target == POWERS:
            mode = str(attributes.get("round_mode", "up"))
            return minifloats.power_of_two(body, x, mode, saturates=saturates)
        if target in minifloats.SATURATING and saturates:
            x = minifloats.saturated(body, target, x)
        return minifloats.rounded(body, target, x)
    if target in SUB_BYTE and KINDS.get(source) in ("f32", "f64"):
        x = body.let(KINDS[source], body.dialect.call("rint", x))
    return _converted(body, x, source, target)


def _converted(body: Body, x: Any, source: str, target: str) -> Any:
    if source == target:
        return x
    if target == "f64":
        return doubles.widened(body, x, source)
    if source == "f64":
        x, source = doubles.narrowed(body, x, target)
        return _converted(body, x, source, target)
    if target in PAIRED:
        return wide_steps.widened(body, x, source)
    if source in PAIRED:
        x, source = pairs.narrowed(body, x, source, target)
        if source == target:
            return x
    dialect, kind = body.dialect, KINDS[target]
    if source in NARROW:
        source = "f32"
    if target in NARROW:
        x = _converted(body, x, source, "f32")
        return rounded(body, target, x)
    if source == target:
        return x
    if target == "i1" and source == "f32":
        # by its bits, as "!=" may be false of what is no number
        bits = dialect.reinterpret("u32", x)
        return body.let("i1", f"({bits} & 0x7fffffffu) != 0u")
    if target == "i1":
        return body.let("i1", f"{x} != {body.number(KINDS[source], 0)}")
    if source == "i1":
        one, zero = body.number(kind, 1), body.number(kind, 0)
        return body.let(kind, dialect.select(x, one, zero))
    if target == "f32":
        return body.let("f32", dialect.convert("f32", x))
    if source == "f32" and target != "u32":
        x = body.let("i32", dialect.convert("i32", x))
        source = "i32"
    if target in WIDTHS:
        return body.wrapped(target, dialect.convert(kind, x))
    return body.let(kind, dialect.convert(kind, x))
