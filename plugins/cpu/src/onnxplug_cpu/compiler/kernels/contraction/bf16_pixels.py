"""The pixels of which rows of a contraction are made, and how tiles lie over lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from onnxplug_compiler.ir.traced import common_divisor
from onnxplug_cpu.compiler.codegen.tile_registers import ROWS

if TYPE_CHECKING:
    from onnxplug_compiler.ir.views import View
    from onnxplug_cpu.compiler.kernels.contraction.operands import Contraction


class Pixels(NamedTuple):
    """The pixels that the rows of A are made of; distances are in pixels.

    Attributes:
        apart: elements from a pixel to the next.
        line, row: distances of lines and of rows.
        taps: distances of taps from the first.
        number: of a matrix.
    """

    apart: int
    line: int
    row: int
    taps: tuple[int, ...]
    number: int


def pixels_of(contraction: Contraction) -> Pixels | None:
    """The pixels of A; ``None`` if lines or taps do not follow each other."""
    a = contraction.a
    lines, rows = a.shape[2:4]
    if is_strided(a):  # it will be copied
        return Pixels(a.shape[4], 0, 1, (0,), rows)
    line = a.strides[2] if lines > 1 else 0
    row = a.strides[3] if rows > 1 else 0
    taps = [offset // a.dtype.itemsize for offset in contraction.offsets]
    across = (rows - 1) * row
    if min(line, row, *taps) < 0 or (lines > 1 and line < across):
        return None
    apart = common_divisor(line, row, *taps) or 1
    return Pixels(
        apart,
        line // apart,
        row // apart,
        tuple(tap // apart for tap in taps),
        ((lines - 1) * line + across + max(taps)) // apart + 1,
    )


class Lines(NamedTuple):
    """The lines of A as tiles are laid over them.

    Attributes:
        number: of lines.
        rows: of each.
        pitch: rows from a line of the result to the next in one of these lines.
    """

    number: int
    rows: int
    pitch: int

    @property
    def tiles(self) -> int:
        """How many tiles of rows there are."""
        return self.number * -(-self.rows // ROWS)


_NEVER: Final = 1 << 40  # the pitch of lines that are those of the result


def lines_of(pixels: Pixels, lines: int, rows: int) -> Lines:
    """How tiles lie over lines of the result: a tile within a line, or, where lines are
    short, all lines with what is between them as one, if that takes clearly fewer."""
    apart = Lines(lines, rows, _NEVER)
    if lines == 1 or pixels.row == 0 or pixels.line % pixels.row:
        return apart
    pitch = pixels.line // pixels.row
    joined = Lines(1, (lines - 1) * pitch + rows, pitch)
    return joined if joined.tiles <= _JOINED * apart.tiles else apart


_JOINED: Final = 0.8
"""Tiles that joined lines may have at most, as a share of those of lines apart."""


def is_strided(a: View) -> bool:
    """Whether the elements of a row are apart."""
    return a.shape[4] > 1 and a.strides[4] != 1
