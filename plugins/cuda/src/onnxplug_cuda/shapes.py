"""Shapes of workgroups for NVIDIA's GPUs, by what the generations have.

None was measured on hardware.  A warp has 32 lanes, and rows and sums are shared by
multiples of that; a lane of a product of float32 has 8 by 8 sums, by which each number
that it loads from shared memory is used eight times.
"""

from __future__ import annotations

from typing import Final

from onnxplug_compiler.gpu.shapes import Shapes

_TENSOR_CORES: Final = (((8, 0), "f16 bf16 i8"), ((7, 5), "f16 i8"))
"""The elements that tensor cores multiply by ``mma``, from which compute capability on
(NVIDIA, PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions")."""


_TF32: Final = (8, 0)
"""From which compute capability on they multiply float32 as TF32."""


def shapes_for(
    capability: tuple[int, int], *, multiprocessors: int = 1, tf32: bool = False
) -> Shapes:
    """Those for GPUs of a compute capability, such as ``(9, 0)``.

    Args:
        multiprocessors: how many the GPU has, each of which runs a workgroup at once;
            1: products are not divided for more of them.
        tf32: whether factors of float32 may be rounded to TF32.
    """
    found = " ".join(
        [elements for least, elements in _TENSOR_CORES if capability >= least][:1]
        + ["tf32"] * (tf32 and capability >= _TF32)
    )
    return Shapes(
        side=16,
        few_lanes=128,
        per_lane=8,
        row_lanes=128,
        worth_a_group=64,
        busy=multiprocessors,
        vector=16,
        tensor_cores=found,
    )
