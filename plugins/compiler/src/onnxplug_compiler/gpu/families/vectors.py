"""Chains and copies by vectors: a lane has neighbouring elements, of 16 bytes as a
rule, which it reads and writes by one instruction, and whose coordinates it finds once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from onnxplug_compiler.gpu.command import operand
from onnxplug_compiler.gpu.render.body import BYTES, Body, Operand
from onnxplug_compiler.gpu.render.dialect import Vectors
from onnxplug_compiler.gpu.render.steps import emit_chain
from onnxplug_compiler.gpu.shapes import shapes_of
from onnxplug_compiler.ir.elementwise import Chain
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

LANES: Final = 128
"""Invocations of a workgroup."""

MOST_BYTES: Final = 1 << 30
"""Of a buffer: launches over larger ones may be split, those of vectors are not."""

_MOST_STEPS: Final = 256
"""Steps of a chain for all elements of a vector, which are written out."""


class VectorChainKernel(Parameters):
    """Applies a chain; its sizes are how many vectors there are, and of the axes, the
    last one in vectors.

    Attributes:
        width: elements of a vector.
        beside: of each array whether its elements lie side by side; if not, those of a
            vector are one.
    """

    chain: Chain
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    width: int
    beside: tuple[bool, ...]

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.inputs + self.outputs

    @property
    def sizes(self) -> int:
        return 1 + self.outputs[0].rank

    def write(self, body: Body) -> None:
        vectors = body.dialect.vectors
        if vectors is None:
            raise ValueError("the language of the kernel has no vectors of memory")
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            at = body.coordinates(index, range(1, self.sizes))
            at[-1] = body.let("u32", f"{at[-1]} * {self.width}u")
            numbers = [n for n, beside in enumerate(self.beside) if beside]
            aligned = " && ".join(body.aligned(n, self.width) for n in numbers)
            aligned = body.let("i1", aligned)
            with body.when(aligned):
                self._vectors(body, vectors, at)
            with body.when(f"!{aligned}"), body.loop(f"{self.width}u") as number:
                last = body.let("u32", f"{at[-1]} + {number}")
                self._element(body, [*at[:-1], last])

    def _vectors(self, body: Body, vectors: Vectors, at: Sequence[str]) -> None:
        """All elements of a vector at once, each of them by itself."""
        places = [body.place(n, at) for n in range(len(self.operands))]
        is_copy = len(self.inputs) == 1 and self.chain.outputs == (0,)
        if is_copy and not self.chain.steps and self.beside[0]:
            self._copy(body, vectors, places)
            return
        inputs = [
            body.load_vector(vectors, n, places[n], self.width)
            if self.beside[n]
            else [body.load(n, places[n])] * self.width
            for n in range(len(self.inputs))
        ]
        results = [
            emit_chain(body, self.chain, [values[n] for values in inputs])
            for n in range(self.width)
        ]
        for n, values in enumerate(zip(*results, strict=True), len(self.inputs)):
            body.store_vector(vectors, n, places[n], values)

    def _element(self, body: Body, at: Sequence[str]) -> None:
        """One element, of arrays that do not begin where vectors do."""
        count = len(self.inputs)
        values = [body.load(n, body.place(n, at)) for n in range(count)]
        for n, result in enumerate(emit_chain(body, self.chain, values), count):
            body.store(n, body.place(n, at), result)

    def _copy(self, body: Body, vectors: Vectors, places: Sequence[str]) -> None:
        """Without looking at elements."""
        nbytes = BYTES[self.inputs[0].element] * self.width
        names = [body.buffer(n) for n in range(2)]
        at = [f"u32({place}) / {self.width}u" for place in places]
        words = vectors.load(nbytes, names[0], at[0], body.let)
        body.line(vectors.store(nbytes, names[1], at[1], words))


def vectored(
    recorder: Recorder[Any], chain: Chain, arrays: Sequence[View], inputs: int
) -> tuple[VectorChainKernel, tuple[int, ...]] | None:
    """A kernel with vectors, and its sizes; ``None`` where the target has none, or
    elements do not lie so.

    Args:
        arrays: of one shape, what is read and then what is written.
        inputs: how many are read.
    """
    shape = arrays[0].shape
    operands = tuple(
        operand(view, written=number >= inputs) for number, view in enumerate(arrays)
    )
    sizes = [BYTES[each.element] for each in operands]
    if any(view.buffer.nbytes > MOST_BYTES for view in arrays):
        return None
    if not shape or not all(sizes):
        return None
    width = shapes_of(recorder).vector // max(sizes)
    while width * len(chain.steps) > _MOST_STEPS:
        width //= 2
    if width < 2 or shape[-1] % width:
        return None
    beside = tuple(view.strides[-1] == 1 for view in arrays)
    for view, is_beside, written in zip(
        arrays, beside, (each.written for each in operands), strict=True
    ):
        if is_beside:
            nbytes = view.dtype.itemsize * width
            lines = [*view.strides[:-1], view.offset // view.dtype.itemsize]
            if view.offset % nbytes or any(line % width for line in lines):
                return None
        elif written or view.strides[-1]:
            return None
    kernel = VectorChainKernel(
        chain, operands[:inputs], operands[inputs:], width, beside
    )
    vectors = (*shape[:-1], shape[-1] // width)
    count = arrays[0].size // width
    return kernel, (count, *vectors)
