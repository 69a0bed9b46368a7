"""What a target is asked to record, by families of work.

Each family is a protocol, which an object has, or a module: one that is imported when a
model first needs it.  All take a recorder, views and plain data, and append commands
of the target's own; dtypes are those that the target says it takes.  Views have any
strides unless something else is said, and outputs no element twice.  What does not fit
is a ``ValueError``: the call is then computed on arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

from onnxplug.authoring.operators import having
from onnxplug_compiler.ir.elementwise import Chain
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import Combining, Slide


class Elementwise(Protocol):
    """Chains over whole arrays."""

    def record_chain(
        self,
        recorder: Recorder[Any],
        chain: Chain,
        inputs: Sequence[View],
        outputs: Sequence[View],
        *,
        label: str = "",
    ) -> None:
        """Apply *chain* to every element.

        Args:
            inputs: one view per input of the chain, broadcast as numpy does to the
                shape of the outputs.
            outputs: one view per output, all of one shape; each may be an input of the
                same place and strides.
            label: for profiles; the operators by default.
        """


class Contractions(Protocol):
    """Products of matrices, and convolutions as sums over windows.

    Sums of floats of 16 bits are of float32; *out* is of either, and an epilogue's
    value 0 of what its chain says.
    """

    def record_matmul(
        self,
        recorder: Recorder[Any],
        a: View,
        b: View,
        out: View,
        *,
        epilogue: Epilogue | None = None,
        label: str = "MatMul",
    ) -> None:
        """The product of *a* and *b*, batch by batch.

        Args:
            a: ``[*batch, M, K]``, at most two batch axes.
            b: ``[*batch, K, N]``; batch axes of both that are missing, of size 1, or of
                stride 0 are repeated.
            out: ``[*batch, M, N]``, with consecutive columns.
            epilogue: takes the result instead of *out*, which is then not written and
                whose strides do not matter; its views have the axes of *out*.
            label: for profiles, the sizes not included.
        """

    def record_contraction(
        self,
        recorder: Recorder[Any],
        a: View,
        b: View,
        out: View,
        *,
        epilogue: Epilogue | None = None,
        label: str = "Conv",
    ) -> None:
        """The sum over taps and depth of *a* times *b*, line by line.

        Args:
            a: ``[batch0, batch1, lines, rows, *taps, depth]``, at most three axes of
                taps; its elements may overlap in memory, as those of windows do.
            b: ``[batch0, batch1, *taps, depth, columns]``; batch axes of both of size 1
                or stride 0 are repeated.
            out: ``[batch0, batch1, lines, rows, columns]``, with consecutive columns.
            epilogue, label: as of :meth:`record_matmul`.

        No taps, or no depth, give zeros.
        """


class Convolutions(Protocol):
    """Convolutions as a whole, as libraries have them."""

    def record_convolution(
        self,
        recorder: Recorder[Any],
        x: View,
        weights: View,
        slides: Sequence[Slide],
        epilogue: Epilogue,
        *,
        transposed: bool = False,
        label: str = "Conv",
    ) -> bool:
        """Convolve, if this convolution is taken.

        Args:
            x: [N, C, *spatial], one to three spatial axes.
            weights: [M, C / groups, *taps]; transposed, [C, M / groups, *taps].
            slides: how windows slide along each spatial axis: of *x*, with as many
                results as fit; transposed, of the result.
            epilogue: takes the result; its views are [N, M, *spatial].
            transposed: whether it is the gradient of a convolution by its input.
            label: for profiles, the sizes not included.

        Returns:
            whether it was; nothing is recorded otherwise.
        """


class Transforms(Protocol):
    """Convolutions of 3×3 by transforms of tiles."""

    def transform_tile(
        self, recorder: Recorder[Any], weights: View, shape: Sequence[int]
    ) -> int:
        """Places of the result that a tile has along an axis, where that is faster
        than contractions; 0 where it is not, or these weights were refused.

        Args:
            weights: [M, C, 3, 3] of a constant.
            shape: of the result, [images, lines, pixels, columns].
        """

    def record_transformed(
        self,
        recorder: Recorder[Any],
        x: View,
        weights: View,
        pads: tuple[int, int],
        epilogue: Epilogue,
        *,
        tile: int,
        label: str = "Conv",
    ) -> None:
        """Convolve with kernels of 3×3 places, stride and dilation 1.

        Args:
            x: [N, C, H, W] with consecutive channels.
            weights: [M, C, 3, 3] of a constant.
            pads: zeros before the first line and pixel; after the last ones there are
                as many as the result's size asks for.
            epilogue: takes the result; its views are [N, 1, lines, pixels, M].
            tile: of :meth:`transform_tile`.
            label: for profiles, the sizes not included.
        """


class Windows(Protocol):
    """Convolutions of each channel by itself, or of small groups."""

    def takes_codes(self) -> bool:
        """Whether :meth:`record_depthwise` takes codes."""

    def takes_groups(
        self,
        recorder: Recorder[Any],
        depth: int,
        slides: Sequence[Slide],
        shape: Sequence[int],
        pixels: int,
    ) -> bool:
        """Whether groups of *depth* channels are taken, as many results as channels.

        Args:
            slides: along each spatial axis.
            shape: of the input, [N, C, *spatial].
            pixels: windows along the last axis.
        """

    def record_depthwise(
        self,
        recorder: Recorder[Any],
        a: View,
        weights: View,
        out: View,
        *,
        strides: Sequence[int],
        dilations: Sequence[int],
        pads: Sequence[int],
        zero: View | None = None,
        codes: View | None = None,
        epilogue: Epilogue | None = None,
        label: str = "Conv",
    ) -> None:
        """Convolve each channel with weights of its own, or each of a group with
        weights for all of the group.

        Args:
            a: [N, C, *spatial], one to three spatial axes.
            weights: [C, D, *taps], for groups of D channels.
            out: [N, C, *spatial], as many as windows fit.
            strides, dilations: of each spatial axis, at least 1.
            pads: at the beginnings, and then at the ends, not negative.
            zero: the zero point of *a*, one number of f32, if *a* has codes of a byte
                and it may be another than 0.  Weights are differences of codes, as
                f32, at most ``MOST_CODED_TERMS`` for a result.
            codes: the weights as codes of int8, if these have no zero points.
            epilogue: of the shape of *out*; takes the result instead of it.
            label: for profiles, the sizes not included.
        """


class Pools(Protocol):
    """Windows whose elements become one, channel by channel."""

    def record_pool(
        self,
        recorder: Recorder[Any],
        combining: Combining,
        x: View,
        out: View,
        slides: Sequence[Slide],
        *,
        counts_padding: bool = False,
        label: str = "Pool",
    ) -> None:
        """Combine the elements of each window.

        Args:
            combining: how; without weights.
            x: [N, C, *spatial], one to three spatial axes.
            out: [N, C, *spatial]; windows may reach beyond the padding.
            slides: how windows slide along each spatial axis.
            counts_padding: for a mean, padding counts as zeros; what is beyond it does
                not.
            label: for profiles, the sizes not included.

        A window that has no element gives what the fold has of nothing, and a mean NaN.
        """


class Movement(Protocol):
    """Elements that only move, as bits."""

    def record_copy(
        self,
        recorder: Recorder[Any],
        source: View,
        target: View,
        *,
        label: str = "Copy",
    ) -> None:
        """Copy *source* to *target*, of the same shape and dtype."""

    def record_copies(
        self,
        recorder: Recorder[Any],
        pairs: Sequence[tuple[View, View]],
        *,
        label: str = "Copy",
    ) -> None:
        """Copy the first view of each pair to the second; no target is in what others
        read or write, so all may be copied at once."""

    def record_trilu(
        self,
        recorder: Recorder[Any],
        source: View,
        target: View,
        diagonal: int,
        *,
        upper: bool,
        label: str = "Trilu",
    ) -> None:
        """The elements on one side of a diagonal, and on it; zero bits elsewhere.

        Args:
            source, target: matrices along the last two axes.
            diagonal: how far the diagonal lies above the main one.
            upper: keep what is above, not below.
        """


class Indexing(Protocol):
    """Elements that are found by indices of int32 or int64; negative ones count back.

    An index out of range is an ``IndexError`` of the run, by
    :meth:`~.recorder.Recorder.check`.
    """

    def record_gather(
        self,
        recorder: Recorder[Any],
        data: View,
        indices: View,
        target: View,
        axis: int,
        *,
        label: str = "Gather",
    ) -> None:
        """``target = numpy.take(data, indices, axis)``, for indices of any shape.

        Args:
            target: ``data[:axis] + indices + data[axis + 1:]``.
            axis: from ``-rank`` to ``rank - 1``.
        """

    def record_gather_elements(
        self,
        recorder: Recorder[Any],
        data: View,
        indices: View,
        target: View,
        axis: int,
        *,
        label: str = "GatherElements",
    ) -> None:
        """``target[i, j, …] = data[i, indices[i, j, …], …]`` for an *axis* of 1.

        Args:
            indices: of the target's shape, no longer than the data along other axes.
            axis: from ``-rank`` to ``rank - 1``.
        """

    def record_gather_nd(
        self,
        recorder: Recorder[Any],
        data: View,
        indices: View,
        target: View,
        batch_dims: int = 0,
        *,
        label: str = "GatherND",
    ) -> None:
        """ONNX's GatherND: the last axis of the indices holds one index per data axis.

        Args:
            indices: ``batch + outer + [count]``.
            target: ``batch + outer + data[batch_dims + count:]``.
            batch_dims: leading axes that data and indices share.
        """

    def record_scatter_elements(
        self,
        recorder: Recorder[Any],
        data: View,
        indices: View,
        updates: View,
        target: View,
        axis: int,
        *,
        reduction: str = "none",
        label: str = "ScatterElements",
    ) -> None:
        """The target is the data, but ``target[i, indices[i, j, …], …] =
        updates[i, j, …]`` for an *axis* of 1.

        Of values for one place one is kept: the last if the updates are contiguous,
        whose order is also that in which they are combined.

        Args:
            reduction: ``add``, ``mul``, ``max`` or ``min`` with what is there; of bool
                or, and, or, and; float16 and bfloat16 in float32.
            indices: no longer than the data along other axes.
            updates: of the indices' shape.
            target: of the data's shape; it may be the data itself.
            axis: from ``-rank`` to ``rank - 1``.
        """

    def record_scatter_nd(
        self,
        recorder: Recorder[Any],
        data: View,
        indices: View,
        updates: View,
        target: View,
        *,
        reduction: str = "none",
        label: str = "ScatterND",
    ) -> None:
        """ONNX's ScatterND; of values for one place as in
        :meth:`record_scatter_elements`.

        Args:
            indices: ``outer + [count]``.
            updates: ``outer + data[count:]``.
            target: of the data's shape; it may be the data itself.
        """


REDUCTIONS: Final = tuple(sorted(having("reduction")))
"""The operators of :meth:`Reductions.record_reduce`."""


class Reductions(Protocol):
    """Elements that become fewer along axes, or sums up to each of them."""

    def record_reduce(
        self,
        recorder: Recorder[Any],
        kind: str,
        x: View,
        out: View,
        axes: tuple[int, ...],
    ) -> None:
        """Reduce *axes* of an array.

        Args:
            kind: one of :data:`REDUCTIONS`.
            out: x's dtype; the reduced axes are of size 1 or left out.
            axes: which, from 0; none reduces each element by itself.
        """

    def record_moments(
        self,
        recorder: Recorder[Any],
        x: View,
        axes: tuple[int, ...],
        *,
        label: str = "",
    ) -> tuple[View, View]:
        """The mean and the variance over *axes*, at least one: the mean square of what
        differs from it.

        Returns:
            Both of x's shape with sizes of 1 along *axes*, in new memory; of floats of
            16 bits in float32.
        """

    def record_cumulative(
        self,
        recorder: Recorder[Any],
        source: View,
        target: View,
        axis: int,
        *,
        product: bool = False,
        exclusive: bool = False,
        reverse: bool = False,
        label: str = "",
    ) -> None:
        """The sums of the elements up to each one along *axis*, added one by one;
        float16 and bfloat16 in float32, rounded as they are written.

        Args:
            axis: from ``-rank`` to ``rank - 1``.
            product: multiply, rather than add.
            exclusive: leave out the element itself.
            reverse: begin at the end.
        """


class Rows(Protocol):
    """What is computed row by row."""

    def record_softmax(
        self,
        recorder: Recorder[Any],
        x: View,
        out: View,
        *,
        axis: int = -1,
        log: bool = False,
        label: str = "",
    ) -> None:
        """Softmax of *x* along an axis.

        Args:
            x, out: of one shape; they may be the same view.
            axis: which; may be negative.
            log: give the logarithm instead.
            label: for profiles.
        """

    def record_norm(
        self,
        recorder: Recorder[Any],
        x: View,
        out: View,
        *,
        epsilon: float,
        centered: bool = True,
        scale: View | None = None,
        bias: View | None = None,
        mean: View | None = None,
        inverse: View | None = None,
        label: str = "",
    ) -> None:
        """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` of each row.

        Args:
            x, out: [..., n].
            centered: LayerNormalization; if not, RMSNormalization: the mean is taken to
                be zero, and the variance is the mean square.
            scale, bias: broadcast to x's shape.
            mean, inverse: where to write the mean and the inverse standard deviation;
                of x's shape but for a last axis of 1.
            label: for profiles.
        """


Undefined: TypeAlias = Literal["masked_zero", "zero", "nan"]
"""What queries without a softmax give: those that see no key, and whose scores are NaN.

- ``masked_zero``: those that see no key give 0, as ONNX's Attention has it, and what an
  added minus infinity hides may be NaN;
- ``zero``: all give 0, as where Softmax is followed by a choice of 0 where it is NaN;
- ``nan``: all give NaN, as Softmax has it.
"""


class Attention(Protocol):
    """Scaled dot-product attention."""

    def record_attention(
        self,
        recorder: Recorder[Any],
        q: View,
        k: View,
        v: View,
        out: View,
        *,
        scale: float,
        mask: View | None = None,
        causal: bool = False,
        past_length: int = 0,
        softcap: float = 0.0,
        undefined: Undefined = "masked_zero",
        hides: bool = False,
        fill: float = -math.inf,
        label: str = "",
    ) -> None:
        """``softmax(q k^T * scale + mask) v`` for every head.

        Args:
            q: [B, H, S, D]; all but the mask with consecutive elements in the last
                axis.
            k: [B, Hkv, T, D]; H is a multiple of Hkv, and each key head serves H / Hkv
                consecutive query heads.
            v: [B, Hkv, T, Dv].
            out: [B, H, S, Dv].
            scale: multiplied with *q*.
            mask: to add, or bool: which keys a query sees; broadcast to [B, H, S, T].
            causal: query i sees the keys up to ``past_length + i`` only.
            past_length: how many keys precede the first query, where *causal*.
            softcap: where not 0, scores become ``softcap * tanh(scores / softcap)``
                before they are masked.
            undefined: what queries give that have no softmax.
            hides: a bool mask has the keys that a query does not see.
            fill: what a bool mask puts in the place of scores.
            label: for profiles.
        """
