"""Convolutions of networks take about as few instructions of tiles as they can."""

from __future__ import annotations

import numpy as np
import pytest

from onnxplug_cpu.compiler.kernels.contraction.bf16_block import TermsProduct
from onnxplug_cpu.compiler.kernels.contraction.commands import record_contraction

from .interpreter import Interpreter
from .kernels.test_contraction_windows import exact, filters, normal, windows
from .tile_counts import NETWORKS, Layer, counts_of, layers, table, written
from .tiled import counted

STEM = NETWORKS["ResNet-50"][0]


def test_the_page_has_the_table() -> None:
    assert written() == table()


@pytest.mark.parametrize("name", NETWORKS)
def test_no_layer_is_far_from_the_least(name: str) -> None:
    found = layers(name)
    for layer, counts in found.items():
        assert counts.flops, layer
        if counts.products:
            most = 1.41 if layer == STEM else 1.15
            assert counts.least <= counts.products <= most * counts.least, layer
            assert counts.loads <= 0.68 * counts.products, layer
    wanted = [
        layer
        for layer in found
        if min(layer.inputs * layer.kernel**2, layer.outputs) // layer.groups >= 64
    ]
    assert all(found[layer].products for layer in wanted)


@pytest.mark.parametrize(
    "layer",
    [
        Layer(9, 70, 80),  # an odd number of tiles, and half a block of columns
        Layer(14, 64, 64, 3),
        Layer(14, 64, 96, 3, 2),  # windows are copied
        Layer(14, 96, 128, 1, 2),
        Layer(7, 70, 64, 3),  # lines are joined
        Layer(16, 64, 128, 3, groups=2),
        Layer(9, 800, 64),  # of two sums
    ],
    ids=str,
)
def test_counts_are_those_of_emulated_tiles(layer: Layer) -> None:
    size, inputs, outputs, kernel, stride, _, groups = layer
    rng = np.random.default_rng(0)
    with counted() as count:
        interpreter = Interpreter(count.isa)
        recorder = interpreter.recorder
        recorder.target = recorder.target._replace(allow_bf16x3=lambda: True)
        extent = size + kernel - 1
        image = interpreter.input(normal(rng, 1, extent, extent, inputs))
        weights = recorder.constant(
            normal(rng, outputs, inputs // groups, kernel, kernel)
        )
        a = windows(image, (kernel,) * 2, (stride,) * 2, (1, 1), groups)
        b = filters(weights, groups)
        out = interpreter.output(np.float32, (*a.shape[:4], outputs // groups))
        record_contraction(recorder, a, b, out)
        interpreter.run()
    found = interpreter.read(out)
    wanted, sizes = exact(interpreter.read(a), interpreter.read(b))
    assert np.all(np.abs(found - wanted) <= 4e-7 * sizes)
    assert isinstance(recorder.commands[-1].kernel.generator, TermsProduct)
    assert counts_of(recorder.commands[-1]).products == count.products
