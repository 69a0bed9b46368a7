"""coremltools' graph passes, applied without what it writes to the terminal."""

from __future__ import annotations

from typing import Any, Final

_LEFT_OUT: Final = frozenset(
    {
        "common::add_fp16_cast",  # by choice: see below
        "common::add_int16_cast",  # of indices, which saves nothing worth its casts
    }
)


def apply_passes(tools: Any, program: Any, *, narrow: bool) -> None:
    """Optimise MIL's program in place, as ``coremltools.convert`` does.

    Args:
        narrow: float32 is computed in float16; inputs and outputs stay.
    """
    registry = tools.converters.mil.mil.passes.pass_registry.PASS_REGISTRY
    names = [
        *tools.PassPipeline.DEFAULT.passes,
        *tools.PassPipeline.get_pipeline("backend_mlprogram").passes,
    ]
    for name in names:
        if name in _LEFT_OUT and not (narrow and name == "common::add_fp16_cast"):
            continue
        # its own, for the registry's keep the options that somebody gave them
        type(registry[name])()(program)
    program.validate(check_essential_scope=True)
