"""For which engine a partition is lowered, and what that engine has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from onnxplug import ep


class Engine(StrEnum):
    """What runs programs."""

    CORE_AI = "CoreAI"
    ML_PROGRAM = "MLProgram"


@dataclass(frozen=True, slots=True)
class Target:
    """An engine, and how it is to compute.

    Attributes:
        precision: in which type float32 is computed; float16 on the Neural Engine.
        minimum_os: the oldest system that is to run the program, as ``(18, 0)`` of iOS
            for MLProgram.
    """

    engine: Engine
    precision: ep.DataType = ep.DataType.FLOAT32
    minimum_os: tuple[int, int] = (18, 0)

    @property
    def most_dimensions(self) -> int:
        """The rank of the largest tensor that the engine takes."""
        return 5 if self.engine is Engine.ML_PROGRAM else 8

    def dtype_for(self, dtype: ep.DataType) -> ep.DataType | None:
        """The engine's type for ONNX's *dtype*; ``None`` if it has none."""
        return _TYPES[self.engine].get(dtype)


_SHARED = {
    each: each
    for each in (
        ep.DataType.FLOAT32,
        ep.DataType.FLOAT16,
        ep.DataType.INT32,
        ep.DataType.BOOL,
    )
}
_TYPES = {
    Engine.CORE_AI: {**_SHARED, ep.DataType.INT64: ep.DataType.INT64},
    # int64 is narrowed where values are checked to fit: see Port
    Engine.ML_PROGRAM: {**_SHARED, ep.DataType.INT64: ep.DataType.INT32},
}
