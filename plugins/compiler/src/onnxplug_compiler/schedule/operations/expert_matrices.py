"""Weights of several experts, and products with those of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.schedule.coded import coded_products

if TYPE_CHECKING:
    from onnxplug_compiler.ir.recorder import Recorder
    from onnxplug_compiler.ir.target import Target
    from onnxplug_compiler.ir.views import View

_Recorder: TypeAlias = "Recorder[Target]"


class Matrix(Protocol):
    """A matrix [N, K] of each expert."""

    def bias_of(self, expert: int) -> View | None:
        """What is to be added to the expert's products, [N]."""

    def record(
        self, recorder: _Recorder, expert: int, x: View, out: View, label: str
    ) -> None:
        """Record the product of *x* [rows, K] with an expert's matrix, transposed, to
        *out* [rows, N], both of float32 in C order."""


class FloatMatrix:
    """Weights that are floats.

    Args:
        weights: [E, N, K].
        bias: [E, N].
    """

    def __init__(self, weights: View, bias: View | None) -> None:
        self._weights, self._bias = weights, bias

    def bias_of(self, expert: int) -> View | None:
        """See :meth:`Matrix.bias_of`."""
        return None if self._bias is None else self._bias.place(expert)

    def record(
        self, recorder: _Recorder, expert: int, x: View, out: View, label: str
    ) -> None:
        """See :meth:`Matrix.record`."""
        matrix = self._weights.place(expert).transpose((1, 0))
        recorder.target.contractions.record_matmul(
            recorder, x, matrix, out, label=label
        )


class CodedMatrix(FloatMatrix):
    """Weights that are codes.

    Args:
        weights: [E, N, K * bits / 8] of uint8.
        bias: [E, N].
        scales: [E, N, blocks], or [E, N] if *block* is 0.
        zeros: [E, N, blocks * bits / 8] of uint8, packed as weights are, or [E, N].
        bits: of a code.
        block: codes that share a scale; 0 if all of a column do.
        rounds: rows may be rounded to bytes, with a scale for each block.
    """

    def __init__(
        self,
        weights: View,
        bias: View | None,
        scales: View,
        zeros: View | None,
        bits: int,
        block: int,
        *,
        rounds: bool,
    ) -> None:
        super().__init__(weights, bias)
        self._scales, self._zeros = scales, zeros
        self._bits, self._block, self._rounds = bits, block, rounds

    def record(
        self, recorder: _Recorder, expert: int, x: View, out: View, label: str
    ) -> None:
        """See :meth:`Matrix.record`."""
        rows, depth = x.shape
        bits, block = self._bits, self._block or depth
        blocks, columns = depth // block, out.shape[1]
        lead = [blocks] if self._block else []
        sums = [*lead, block]

        def of(view: View, *sizes: int) -> View:
            """[N, *sizes] of the expert as [1, 1, *sizes, N]."""
            apart = _shaped(view.place(expert), (columns, *sizes))
            turned = apart.transpose((*range(1, 1 + len(sizes)), 0))
            strides = (0, 0, *turned.strides)
            shape = (1, 1, *turned.shape)
            return type(view)(turned.buffer, turned.offset, view.dtype, shape, strides)

        def repeated(view: View) -> View:
            return view.broadcast_to((*view.shape[:-2], block, columns))

        axis = 1 + len(sums)
        codes = Codes(of(self._weights, *lead, block * bits // 8), bits % 8, axis)
        zero = None
        if self._zeros is not None and self._block:
            packed = -(-blocks * bits // 8)
            zero = Codes(repeated(of(self._zeros, packed, 1)), bits % 8, 2)
        elif self._zeros is not None:
            zero = Codes(repeated(of(self._zeros, 1)))
        right = Factor(
            codes,
            zero,
            0 if zero is not None else 1 << bits - 1,
            repeated(of(self._scales, *lead, 1)),
        )
        left = Factor(Codes(_shaped(x, (1, 1, rows, *sums))), rounds=self._rounds)
        coded_products(recorder).record_coded(
            recorder, left, right, _shaped(out, (1, 1, *out.shape)), label=label
        )


def _shaped(view: View, shape: tuple[int, ...]) -> View:
    found = view.reshape(shape)
    assert found is not None, "in C order"
    return found
