"""Shapes of workgroups: what kernels of the same results may have otherwise."""

from __future__ import annotations

from typing import Any, Final

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.recorder import Recorder

FEW_ROWS: Final = 8
"""Rows of a product up to which lanes share its sums, without tiles."""

MOST_LANES: Final = 256
"""Invocations of a workgroup: as many as all targets have."""

_WORKGROUP_BYTES: Final = 16384
"""Bytes that the lanes of a workgroup share: as many as all targets have."""


class Shapes(Record):
    """The shapes of a target's workgroups; all numbers but *busy* are powers of two.

    Attributes:
        side: lanes along each side of a product's tile, which are also how many
            products a tile has at hand.
        few_lanes: lanes that share sums of products of at most :data:`FEW_ROWS` rows.
        per_lane: elements of a lane along a tile's side, at most.
        row_lanes: lanes that share a row of a softmax, a norm or a reduction.
        worth_a_group: elements of a result from which on a workgroup shares them.
        busy: workgroups that the GPU runs at once, at least: long sums of products that
            have fewer are split into parts; 1: none are.
        vector: bytes that a lane reads and writes at once where elements lie side by
            side, at most; 1: elements one by one.
        tensor_cores: the elements of factors that tensor cores multiply, by spaces;
            of i8 also u8.
    """

    side: int = 16
    few_lanes: int = 64
    per_lane: int = 4
    row_lanes: int = 64
    worth_a_group: int = 32
    busy: int = 1
    vector: int = 1
    tensor_cores: str = ""

    def check(self) -> None:
        """Check that all targets have such workgroups.

        Raises:
            ValueError: they have not, or a number is no power of two.
        """
        for name, number in self._asdict().items():
            if name == "tensor_cores":
                continue
            if type(number) is not int or number < 1:
                raise ValueError(f"{name} is {number!r}, and no whole number from 1 on")
            if name != "busy" and number & (number - 1):
                raise ValueError(f"{name} is {number}, and no power of two")
        if max(self.side**2, self.few_lanes, self.row_lanes) > MOST_LANES:
            raise ValueError(f"{self} has workgroups of more than {MOST_LANES} lanes")
        if self.side**2 * self.per_lane * 2 * 4 > _WORKGROUP_BYTES:
            raise ValueError(f"the tiles of {self} have more than {_WORKGROUP_BYTES} B")
        if self.row_lanes == 1:
            raise ValueError("row_lanes is 1, and a row is shared")

    def per_lane_for(self, size: int, side: int) -> int:
        """Elements of a lane of a tile along an axis of *size*."""
        found = 1
        while found < self.per_lane and size > found * side:
            found *= 2
        return found

    def lanes_of(self, count: int) -> int:
        """Lanes that share a result of *count* elements; 1 if one lane has it."""
        return self.row_lanes if count >= self.worth_a_group else 1


DEFAULT: Final = Shapes()
"""Multiples of the lanes that GPUs run at once, of which 8 to 64 are common."""


def shapes_of(recorder: Recorder[Any]) -> Shapes:
    """Those of the target that *recorder* is for."""
    found: Shapes = recorder.target.shapes
    return found
