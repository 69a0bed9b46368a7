"""How many instructions of tiles convolutions of networks take, and how few they could.

``python plugins/cpu/tests/compiler/tile_counts.py`` writes the table of
``docs/explanation/cpu-compiler.md`` anew.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import onnx
from onnx import helper, numpy_helper

import onnxplug
from onnxplug_cpu.compiler import trial_of_tiles
from onnxplug_cpu.compiler.commands.words import Command
from onnxplug_cpu.compiler.kernels.contraction.bf16_block import TermsProduct
from onnxplug_cpu.compiler.kernels.contraction.bf16_terms import BLOCK, STEP
from onnxplug_cpu.compiler.kernels.contraction.bf16_tiles import PRODUCTS
from onnxplug_cpu.compiler.machine.isa import AMX
from onnxplug_cpu.compiler.segment import Segment

if __package__:
    from . import tiled


class Layer(NamedTuple):
    """A convolution, and how often a network has it.

    Attributes:
        size: of the input, along both axes.
        outputs: channels; negative for a transposed convolution, whose kernel is as
            large as its stride.
    """

    size: int
    inputs: int
    outputs: int
    kernel: int = 1
    stride: int = 1
    times: int = 1
    groups: int = 1


NETWORKS: dict[str, list[Layer]] = {
    "ResNet-50": [
        Layer(224, 3, 64, 7, 2),
        Layer(56, 64, 64),
        Layer(56, 64, 64, 3, times=3),
        Layer(56, 64, 256, times=4),
        Layer(56, 256, 64, times=2),
        Layer(56, 256, 128),
        Layer(56, 128, 128, 3, 2),
        Layer(28, 128, 512, times=4),
        Layer(56, 256, 512, 1, 2),
        Layer(28, 512, 128, times=3),
        Layer(28, 128, 128, 3, times=3),
        Layer(28, 512, 256),
        Layer(28, 256, 256, 3, 2),
        Layer(14, 256, 1024, times=6),
        Layer(28, 512, 1024, 1, 2),
        Layer(14, 1024, 256, times=5),
        Layer(14, 256, 256, 3, times=5),
        Layer(14, 1024, 512),
        Layer(14, 512, 512, 3, 2),
        Layer(7, 512, 2048, times=3),
        Layer(14, 1024, 2048, 1, 2),
        Layer(7, 2048, 512, times=2),
        Layer(7, 512, 512, 3, times=2),
    ],
    "MobileNetV2": [
        Layer(224, 3, 32, 3, 2),
        Layer(112, 32, 16),
        Layer(112, 16, 96),
        Layer(56, 96, 24),
        Layer(56, 24, 144, times=2),
        Layer(56, 144, 24),
        Layer(28, 144, 32),
        Layer(28, 32, 192, times=3),
        Layer(28, 192, 32, times=2),
        Layer(14, 192, 64),
        Layer(14, 64, 384, times=4),
        Layer(14, 384, 64, times=3),
        Layer(14, 384, 96),
        Layer(14, 96, 576, times=3),
        Layer(14, 576, 96, times=2),
        Layer(7, 576, 160),
        Layer(7, 160, 960, times=3),
        Layer(7, 960, 160, times=2),
        Layer(7, 960, 320),
        Layer(7, 320, 1280),
    ],
    "EfficientNet-B0": [
        Layer(224, 3, 32, 3, 2),
        Layer(112, 32, 16),
        Layer(112, 16, 96),
        Layer(56, 96, 24),
        Layer(56, 24, 144, times=2),
        Layer(56, 144, 24),
        Layer(28, 144, 40),
        Layer(28, 40, 240, times=2),
        Layer(28, 240, 40),
        Layer(14, 240, 80),
        Layer(14, 80, 480, times=3),
        Layer(14, 480, 80, times=2),
        Layer(14, 480, 112),
        Layer(14, 112, 672, times=3),
        Layer(14, 672, 112, times=2),
        Layer(7, 672, 192),
        Layer(7, 192, 1152, times=4),
        Layer(7, 1152, 192, times=3),
        Layer(7, 1152, 320),
        Layer(7, 320, 1280),
    ],
    "U-Net": [
        Layer(224, 3, 32, 3),
        Layer(224, 32, 32, 3, times=2),
        Layer(112, 32, 64, 3),
        Layer(112, 64, 64, 3, times=2),
        Layer(56, 64, 128, 3),
        Layer(56, 128, 128, 3, times=2),
        Layer(28, 128, 256, 3),
        Layer(28, 256, 256, 3, times=2),
        Layer(14, 256, 512, 3),
        Layer(14, 512, 512, 3),
        Layer(14, 512, -256, 2, 2),
        Layer(28, 512, 256, 3),
        Layer(28, 256, -128, 2, 2),
        Layer(56, 256, 128, 3),
        Layer(56, 128, -64, 2, 2),
        Layer(112, 128, 64, 3),
        Layer(112, 64, -32, 2, 2),
        Layer(224, 64, 32, 3),
        Layer(224, 32, 21),
    ],
    "in groups": [
        Layer(56, 128, 128, 3, groups=2),
        Layer(28, 256, 256, 3, 2, groups=2),
        Layer(14, 512, 512, 3, groups=4),
        Layer(14, 512, 1024, groups=4),
    ],
}
"""For pictures of 224 × 224, without convolutions of each channel by itself and those
of single pixels, which no tiles compute."""


class Counts(NamedTuple):
    """What contractions take.

    Attributes:
        flops: floating-point operations, two for a multiplication and an addition.
        products: of tiles.
        least: products of tiles that factors of these sizes take at least.
        loads, stores: of tiles.
    """

    flops: int = 0
    products: int = 0
    least: int = 0
    loads: int = 0
    stores: int = 0

    @property
    def full(self) -> float:
        """Products of tiles, if all of them were full."""
        return self.flops / 2 * len(PRODUCTS) / (16 * 16 * STEP)

    def times(self, number: int) -> Counts:
        """The same, so often."""
        return Counts(*(number * count for count in self))

    def plus(self, other: Counts) -> Counts:
        """Both."""
        return Counts(*map(sum, zip(self, other, strict=True)))


def counts_of(command: Command) -> Counts:
    """What a contraction by tiles takes; its floating-point operations alone, if it is
    by other instructions."""
    if not isinstance(command.kernel.generator, TermsProduct):
        return Counts(command.flops)
    words: dict[str, Any] = dict(zip(command.kernel.words, command.words, strict=True))
    matrices = command.chunks // (words["row_parts"] * words["column_parts"])
    steps = words["taps"] * -(-words["depth"] // STEP)
    pairs, single = divmod(words["lines"] * words["tiles"], 2)
    whole, left = divmod(words["columns"], BLOCK)
    found = Counts()
    for rows, high in ((2, pairs), (1, single)):
        for columns, wide in (
            (2, whole + (left > BLOCK // 2)),
            (1, 0 < left <= BLOCK // 2),
        ):
            products = rows * columns * len(PRODUCTS) * steps
            one = Counts(
                0,
                products,
                0,
                # the terms of A come in four changes, those of B in three
                (4 * rows + 3 * columns) * steps,
                rows * columns * words["blocks"],
            )
            found = found.plus(one.times(matrices * high * wide))
    return found._replace(flops=command.flops)


def model_of(layer: Layer) -> onnx.ModelProto:
    """The layer, between others that are element-wise."""
    size, inputs, outputs, kernel, stride, _, groups = layer
    shape: tuple[int, ...] = (outputs, inputs // groups, kernel, kernel)
    attributes: dict[str, Any] = {"strides": [stride] * 2, "group": groups}
    if outputs < 0:
        shape = (inputs, -outputs, kernel, kernel)
    else:
        attributes["pads"] = [kernel // 2] * 4
    operator = "Conv" if outputs > 0 else "ConvTranspose"
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node(operator, ["a", "w"], ["c"], **attributes),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    x, y = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)
        for name, dims in (("x", [1, inputs, size, size]), ("y", None))
    )
    weights = numpy_helper.from_array(np.zeros(shape, np.float32), "w")
    graph = helper.make_graph(nodes, "layer", [x], [y], [weights])
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@functools.cache
def layers(name: str) -> dict[Layer, Counts]:
    """What each layer of a network takes on a processor with AMX, by one thread;
    nothing is run."""
    found: dict[Layer, Counts] = {}
    planned: list[Command] = []

    def no_program(segment: Segment, plan: Any, inputs: Any, look: Any) -> None:
        planned.extend(plan.work)

    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = 1
    with (
        tiled.host(AMX),
        mock.patch.object(trial_of_tiles, "tried", {AMX: True}),
        mock.patch.object(Segment, "link", no_program),
    ):
        for layer in NETWORKS[name]:
            planned.clear()
            onnxplug.InferenceSession(model_of(layer), options)
            counts = Counts()
            for command in planned:
                if command.flops and "Conv" in command.label:
                    counts = counts.plus(counts_of(command))
            least = least_of(layer) if counts.products else 0
            found[layer] = counts._replace(least=least)
    return found


def least_of(layer: Layer) -> int:
    """Products of tiles if all pixels of a result were the rows of one matrix, and all
    elements of a window a row of it."""
    depth, columns = layer.inputs // layer.groups, layer.outputs // layer.groups
    if columns < 0:  # a product for each place by the stride
        tiles = -(-(layer.size**2) // 16) * -(columns // 16) * -(-depth // STEP)
        return len(PRODUCTS) * layer.stride**2 * tiles
    rows, inner = (layer.size // layer.stride) ** 2, depth * layer.kernel**2
    tiles = -(-rows // 16) * -(-columns // 16) * -(-inner // STEP)
    return len(PRODUCTS) * layer.groups * tiles


def table() -> str:
    """A row for each network."""
    lines = [
        "| convolutions of | on tiles | products, of the least | most in a layer "
        "| of full tiles | loads a product | stores a product |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in NETWORKS:
        whole, by_tiles, most = Counts(), Counts(), 0.0
        for layer, counts in layers(name).items():
            whole = whole.plus(counts.times(layer.times))
            if counts.products:
                by_tiles = by_tiles.plus(counts.times(layer.times))
                most = max(most, counts.products / counts.least)
        products = by_tiles.products
        lines.append(
            f"| {name} | {by_tiles.flops / whole.flops:.0%} "
            f"| {products / by_tiles.least:.2f} | {most:.2f} "
            f"| {products / by_tiles.full:.2f} "
            f"| {by_tiles.loads / products:.2f} | {by_tiles.stores / products:.3f} |"
        )
    return "\n".join(lines) + "\n"


PAGE = Path(__file__).parents[4] / "docs" / "explanation" / "cpu-compiler.md"
BEGIN, END = "<!-- counted: begin -->\n", "<!-- counted: end -->\n"


def written() -> str:
    """The table as the page has it."""
    _, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    return rest.partition(END)[0]


def write() -> None:
    """Write the table into the page."""
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{table()}{END}{after}", "utf-8")


if __name__ == "__main__":
    import sys

    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.compiler import tiled

    write()
