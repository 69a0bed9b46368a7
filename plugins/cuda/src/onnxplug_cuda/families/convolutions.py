"""Convolutions as a whole, by cuDNN, and those of one place by cuBLASLt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug_compiler.gpu.command import EngineCall
from onnxplug_compiler.gpu.execution.device import KernelRefused
from onnxplug_compiler.gpu.families.elementwise import record_chain
from onnxplug_compiler.gpu.families.movement import record_copy
from onnxplug_compiler.ir.buffers import Address, Constant
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.elementwise import Chain, ChainBuilder
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import Slide
from onnxplug_cuda.engines.cudnn import Cudnn
from onnxplug_cuda.engines.graphs import NBYTES, Convolution, Tensor
from onnxplug_cuda.families.fused import Fused, fused, per_axis
from onnxplug_cuda.families.pointwise import record_pointwise
from onnxplug_cuda.families.products import Products
from onnxplug_cuda.options import ConvolutionSettings


class Convolutions:
    """A family of ``ir.families.Convolutions``.

    Args:
        cudnn: on the GPU that is recorded for.
        settings: how convolutions are given to it.
        tf32: whether float32 may be rounded to TF32.
        products: of cuBLASLt; ``None``: there are none.
    """

    def __init__(
        self,
        cudnn: Cudnn,
        settings: ConvolutionSettings,
        *,
        tf32: bool,
        products: Products | None = None,
    ) -> None:
        self._cudnn, self._products = cudnn, products
        self._settings, self._tf32 = settings, tf32

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
        """Convolve, if a library does; see ``ir.families.Convolutions``."""
        if (
            self._products is not None
            and not transposed
            and record_pointwise(
                self._products, recorder, x, weights, slides, epilogue, label
            )
        ):
            return True
        element = element_of(x.dtype)
        target = epilogue.outputs[0]
        if (
            element not in NBYTES
            or element_of(weights.dtype) != element
            or 0 in (*x.shape, *weights.shape, *target.shape)
            or any(slide.before < 0 or slide.after < 0 for slide in slides)
        ):
            return False
        does = self._fused(epilogue, element)
        last = _is_last(x)
        if last is None:
            return False
        rest = does.rest
        if rest is None and _is_last(target) != last:
            rest = Chain((element,), (), (), (0,))
        lying = Tensor(target.shape, _strides(target.shape, last=last))
        weights_lie = Tensor(weights.shape, _strides(weights.shape, last=last))
        call = self._call(element, _tensor(x), weights_lie, lying, slides, transposed)
        call = call._replace(
            has_bias=does.bias is not None, relu=does.activation == "relu"
        )
        try:
            workspace = self._cudnn.workspace(call)
        except KernelRefused:
            return False
        out = target
        if rest is not None:
            out = (recorder.channels_last if last else recorder.temporary)(
                x.dtype, target.shape
            )
        arrays = [x, _lying(recorder, weights, last=last)]
        if does.bias is not None:
            bias = per_axis(1, epilogue.operands[does.bias])
            assert bias is not None
            arrays.append(bias)
        arrays.append(out)
        recorder.commands.append(
            EngineCall(
                call,
                tuple(arrays),
                tuple(view is out for view in arrays),
                workspace,
                f"{label}, cuDNN",
                call.flops,
                sum(view.nbytes for view in arrays),
                recorder.nodes,
            )
        )
        if rest is not None:
            operands = [epilogue.operands[number] for number in does.operands]
            record_chain(
                recorder, rest, [out, *operands], epilogue.outputs, label=label
            )
        return True

    def _fused(self, after: Epilogue, element: str) -> Fused:
        """What of the chain cuDNN does, whose results are of *element*."""

        def takes(number: int) -> bool:
            return (
                self._settings.fuses_bias
                and per_axis(1, after.operands[number]) is not None
            )

        results = frozenset({element})
        activations = ("relu",) if self._settings.fuses_bias else ()
        does = fused(after.chain, results, takes, activations)
        if does.element == element:
            return does
        return fused(_of_rounded(after.chain, element), results, takes, activations)

    def _call(
        self,
        element: str,
        x: Tensor,
        w: Tensor,
        y: Tensor,
        slides: Sequence[Slide],
        transposed: bool,
    ) -> Convolution:
        settings, first = self._settings, self._settings.rows_first
        _, strides, dilations, before, after = zip(*slides, strict=True)
        if len(slides) == 1:
            x, w, y = (_with_axis(each, first=first) for each in (x, w, y))
            before, after = (_beside(each, 0, first=first) for each in (before, after))
            strides, dilations = (
                _beside(each, 1, first=first) for each in (strides, dilations)
            )
        return Convolution(
            element, x, w, y, before, after, strides, dilations, transposed,
            tf32=self._tf32 and element == "f32",
            search=settings.search, most=settings.workspace,
        )  # fmt: skip


def _of_rounded(chain: Chain, element: str) -> Chain:
    """*chain* of sums that were rounded to *element*, as cuDNN writes them."""
    builder = ChainBuilder()
    rounded, *operands = map(builder.input, (element, *chain.inputs[1:]))
    total = builder.step("Cast", [rounded], chain.inputs[0])
    return builder.build(builder.append(chain, [total, *operands]))


def _strides(shape: Sequence[int], *, last: bool) -> tuple[int, ...]:
    """Those of an array that lies as its shape says, or with its channels last."""
    order = [0, *range(2, len(shape)), 1] if last else range(len(shape))
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def _is_last(view: View) -> bool | None:
    """Whether an image lies with its channels last; ``None``: neither so, nor as its
    shape says."""
    for last in (True, False):
        strides = _strides(view.shape, last=last)
        if all(
            size == 1 or found == wanted
            for size, found, wanted in zip(
                view.shape, view.strides, strides, strict=True
            )
        ):
            return last
    return None


def _tensor(view: View) -> Tensor:
    """An image with the strides of its layout, also along axes of one element."""
    return Tensor(view.shape, _strides(view.shape, last=bool(_is_last(view))))


def _with_axis(tensor: Tensor, *, first: bool) -> Tensor:
    """The same with another spatial axis, of one element."""
    size, stride = tensor.shape[2], tensor.strides[2]
    # as it would have where the other axis is contiguous to it
    other = stride * size if first else stride
    return Tensor(
        (*tensor.shape[:2], *_beside((size,), 1, first=first)),
        (*tensor.strides[:2], *_beside((stride,), other, first=first)),
    )


def _beside(numbers: tuple[int, ...], other: int, *, first: bool) -> tuple[int, ...]:
    return (other, *numbers) if first else (*numbers, other)


def _lying(recorder: Recorder[Any], weights: View, *, last: bool) -> View:
    """The weights as cuDNN has them for images in this layout."""
    strides = _strides(weights.shape, last=last)
    if weights.strides == strides:
        return weights
    if not isinstance(weights.buffer, Constant):
        found = (recorder.channels_last if last else recorder.temporary)(
            weights.dtype, weights.shape
        )
        record_copy(recorder, weights, found)
        return found

    def fill(recorder: Recorder[Any], source: View, address: Address) -> None:
        there = View(
            address.buffer, address.offset, source.dtype, source.shape, strides
        )
        record_copy(recorder, source, there)

    layout = f"cuDNN {weights.offset} {weights.shape} {weights.strides} {strides}"
    address = recorder.packed(weights, layout, weights.nbytes, fill)
    return View(address.buffer, address.offset, weights.dtype, weights.shape, strides)
