"""Contractions, of which large products are cuBLASLt's and the others kernels.

A product is the library's where it has at least :data:`LEAST` multiplications, and
columns and products of a sum to fill a tile of tensor cores; its factors have floats of
one type; and matrices lie as the library has them: with elements side by side along one
axis.  What follows a product is the library's as far as it is a bias for each column,
an array that is added, a Relu, or Gelu by tanh; a kernel applies the rest to the
result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug_compiler.gpu.command import EngineCall
from onnxplug_compiler.gpu.families import contractions
from onnxplug_compiler.gpu.families.elementwise import record_chain
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.elementwise import Chain
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View
from onnxplug_cuda.engines.cublaslt import CublasLt
from onnxplug_cuda.engines.product import (
    ACTIVATIONS,
    RESULTS,
    Product,
    added_of,
    product_of,
)
from onnxplug_cuda.families.fused import Fused, fused, per_axis
from onnxplug_cuda.options import TuningSettings

NO_TUNING: Final = TuningSettings()

LEAST: Final = 1 << 20
"""Multiplications of all products of a batch.  Not measured on hardware: below, a
launch takes as long as the product."""

LEAST_SIDE: Final = 16
"""Columns, and products of a sum."""

MOST_CALLS: Final = 16
"""Calls for batches that do not lie as one."""

WORKSPACE: Final = 4 << 20
"""Bytes of workspace that products are given; NVIDIA's advice before Hopper."""

HOPPER_WORKSPACE: Final = 32 << 20
"""NVIDIA's advice from Hopper on."""


Parts: TypeAlias = "list[tuple[Product, tuple[View, View, View]]]"
"""Products, each with its factors and its result."""


class Products:
    """A family of ``ir.families.Contractions``.

    Args:
        tf32: whether factors of float32 may be rounded to TF32.
        workspace: bytes that a product may have.
        tuning: how algorithms are found.
        library: says whether it takes a product; ``None``: it is believed to.
    """

    def __init__(
        self,
        *,
        tf32: bool,
        workspace: int = WORKSPACE,
        tuning: TuningSettings = NO_TUNING,
        library: CublasLt | None = None,
    ) -> None:
        self._tf32 = tf32
        self._workspace = workspace
        self._tuning = tuning
        self._library = library

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
        """The product of *a* and *b*; see ``ir.families.Contractions``."""
        lead = out.shape[:-2]
        left, right = (
            _of_two_batches(view.broadcast_to((*lead, *view.shape[-2:])))
            for view in (a, b)
        )
        after = epilogue and _mapped(epilogue, _of_two_batches)
        if not self._record(recorder, left, right, _of_two_batches(out), after, label):
            contractions.record_matmul(
                recorder, a, b, out, epilogue=epilogue, label=label
            )

    def record_product(
        self,
        recorder: Recorder[Any],
        a: View,
        b: View,
        after: Epilogue,
        label: str,
    ) -> bool:
        """Record a product of matrices in two axes of batches, and what follows it, if
        it is the library's; say whether it is."""
        return self._record(recorder, a, b, after.outputs[0], after, label)

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
        """Sums over taps and depth; see ``ir.families.Contractions``."""
        if not self._record_pointwise(recorder, a, b, out, epilogue, label):
            contractions.record_contraction(
                recorder, a, b, out, epilogue=epilogue, label=label
            )

    def _record_pointwise(
        self,
        recorder: Recorder[Any],
        a: View,
        b: View,
        out: View,
        after: Epilogue | None,
        label: str,
    ) -> bool:
        """Record what is a product for having one tap; say whether it was."""
        lead, taps = out.shape[:2], b.shape[2:-2]
        if math.prod(taps) != 1:
            return False
        views = [out, *(after.operands + after.outputs if after else ())]
        flat = [_with_one_row_axis(view) for view in views]
        a = _without(a.broadcast_to((*lead, *a.shape[2:])), range(4, 4 + len(taps)))
        b = _without(b.broadcast_to((*lead, *b.shape[2:])), range(2, 2 + len(taps)))
        left = _with_one_row_axis(a)
        found = [view for view in flat if view is not None]
        if left is None or len(found) < len(flat):
            return False
        out, *others = found
        if after is not None:
            count = len(after.operands)
            after = Epilogue(after.chain, tuple(others[:count]), tuple(others[count:]))
        return self._record(recorder, left, b, out, after, label)

    def _record(
        self,
        recorder: Recorder[Any],
        a: View,
        b: View,
        out: View,
        after: Epilogue | None,
        label: str,
    ) -> bool:
        """Record a product of matrices in two axes of batches, if it is the library's;
        say whether it is."""
        element = element_of(a.dtype)
        *_, count, columns = out.shape
        depth = a.shape[-1]
        large = out.size * depth >= LEAST and min(columns, depth) >= LEAST_SIDE
        if not large or element not in RESULTS or count == 0:
            return False
        if after is None:
            return self._call(
                recorder, self._products(recorder, a, b, out), None, None, "", label
            )
        results = RESULTS[element]
        if after.chain.inputs[0] not in results:
            return False
        does = fused(
            after.chain,
            results,
            lambda n: per_axis(-1, after.operands[n]) is not None,
            ACTIVATIONS,
            lambda n: _is_added(after.operands[n], out),
        )
        return self._record_fused(recorder, a, b, after, does, label)

    def _record_fused(
        self,
        recorder: Recorder[Any],
        a: View,
        b: View,
        after: Epilogue,
        does: Fused,
        label: str,
    ) -> bool:
        target, rest = after.outputs[0], does.rest
        parts = None if rest is not None else self._products(recorder, a, b, target)
        if parts is None:
            shape = (*target.shape[:-2], *target.shape[-2:])
            target = recorder.temporary(_dtype(does.element, after, a), shape)
            parts = self._products(recorder, a, b, target)
            rest = rest or Chain((does.element,), (), (), (0,))
        bias = None if does.bias is None else per_axis(-1, after.operands[does.bias])
        added = None if does.added is None else after.operands[does.added]
        if not self._call(recorder, parts, bias, added, does.activation, label):
            return False
        if rest is not None:
            operands = [after.operands[number] for number in does.operands]
            record_chain(
                recorder, rest, [target, *operands], after.outputs, label=label
            )
        return True

    def _products(
        self, recorder: Recorder[Any], a: View, b: View, out: View
    ) -> Parts | None:
        """The products that give *out*: one, or one for each of the first axis of
        batches; ``None`` if the library has none such."""
        tf32 = self._tf32 and recorder.narrows
        product = product_of(a, b, out, tf32=tf32)
        if product is not None:
            return [(product, (a, b, out))]
        if not 1 < out.shape[0] <= MOST_CALLS:
            return None
        found: Parts = []
        for number in range(out.shape[0]):
            views = _batch(a, number), _batch(b, number), _batch(out, number)
            each = product_of(*views, tf32=tf32)
            if each is None:
                return None
            found.append((each, views))
        return found

    def _call(
        self,
        recorder: Recorder[Any],
        parts: Parts | None,
        bias: View | None,
        added: View | None,
        activation: str,
        label: str,
    ) -> bool:
        """Record products, if there are such and the library takes all; say whether."""
        uses, measures, seconds = self._tuning
        calls = []
        for number, (product, (a, b, out)) in enumerate(parts or ()):
            c = added
            if c is not None and c.shape != out.shape:
                c = _batch(c, number)
            whole = product._replace(
                c=None if c is None else added_of(c),
                has_bias=bias is not None, activation=activation,
                uses_measured=uses, measures=measures, seconds=seconds,
            )  # fmt: skip
            others = [view for view in (c, bias) if view is not None]
            arrays = (b, a, *others, out)
            offsets = [view.offset for view in arrays]
            library = self._library
            if library and not library.takes(whole, offsets, self._workspace):
                return False
            *_, count, columns = out.shape
            calls.append(
                EngineCall(
                    whole,
                    arrays,
                    tuple(view is out for view in arrays),
                    self._workspace,
                    f"{label} {count}×{a.shape[-1]}×{columns}, cuBLASLt",
                    whole.flops,
                    sum(view.nbytes for view in arrays),
                    recorder.nodes,
                )
            )
        recorder.commands += calls
        return bool(calls)


def _dtype(element: str, after: Epilogue, a: View) -> np.dtype[Any]:
    """The dtype of an element that a product has: its factors', or float32."""
    return a.dtype if element == element_of(a.dtype) else np.dtype(np.float32)


def _is_added(view: View, out: View) -> bool:
    """Whether the library adds *view* to a result like *out*."""
    return view.shape == out.shape and added_of(view) is not None


def _of_two_batches(view: View) -> View:
    lead = 4 - len(view.shape)
    shape, strides = (1,) * lead + view.shape, (0,) * lead + view.strides
    return View(view.buffer, view.offset, view.dtype, shape, strides)


def _batch(view: View, number: int) -> View:
    """One of the first axis of batches, with that axis."""
    return view.slice([number, 0, 0, 0], [1, *view.shape[1:]], [1] * 4)


def _mapped(epilogue: Epilogue, change: Callable[[View], View]) -> Epilogue:
    return Epilogue(
        epilogue.chain,
        tuple(map(change, epilogue.operands)),
        tuple(map(change, epilogue.outputs)),
    )


def _without(view: View, axes: range) -> View:
    """The view without axes of one element."""
    kept = [axis for axis in range(len(view.shape)) if axis not in axes]
    return View(
        view.buffer,
        view.offset,
        view.dtype,
        tuple(view.shape[axis] for axis in kept),
        tuple(view.strides[axis] for axis in kept),
    )


def _with_one_row_axis(view: View) -> View | None:
    """[batch0, batch1, lines, rows, …] with lines and rows as one axis; ``None`` if
    they do not follow each other."""
    lines, rows = view.shape[2:4]
    far, near = view.strides[2:4]
    if lines == 1 or rows == 1:
        step = near if lines == 1 else far
    elif far == near * rows:
        step = near
    else:
        return None
    return View(
        view.buffer,
        view.offset,
        view.dtype,
        (*view.shape[:2], lines * rows, *view.shape[4:]),
        (*view.strides[:2], step, *view.strides[4:]),
    )
