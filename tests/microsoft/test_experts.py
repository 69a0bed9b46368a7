"""Mixtures of experts, as ONNX Runtime computes them."""

from __future__ import annotations

import numpy as np
import pytest

import onnxplug

ROWS, EXPERTS, WIDTH, INNER = 6, 5, 32, 64


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "identity", "swiglu"])
def test_experts_of_float32(compare, normal, activation, compiled):
    parts = 2 if activation == "swiglu" else 1
    first, second = normal(EXPERTS, parts * INNER, WIDTH), normal(EXPERTS, WIDTH, INNER)
    biases = normal(EXPERTS, parts * INNER), normal(EXPERTS, WIDTH)
    form = {"activation_type": activation, "k": 2, "tolerance": 2e-5}
    form |= {"compiled": compiled, "constants": (2, 3, 4, 5)}
    if activation == "swiglu":
        form |= {"swiglu_fusion": 1, "swiglu_limit": 7.0, "activation_alpha": 1.702}
    x, router = normal(2, ROWS // 2, WIDTH), normal(ROWS, EXPERTS)
    for whole in (0, 1):
        form["normalize_routing_weights"] = whole
        compare("MoE", [x, router, first, biases[0], second, biases[1]], **form)
    alike = np.round(router)  # of equal scores the last is chosen
    compare("MoE", [x, alike, first, None, second], **form)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [0, 32])
def test_experts_of_codes(compare, normal, integers, bits, block, compiled):
    def codes(rows: int, depth: int) -> list[np.ndarray]:
        blocks = [depth // block] if block else []
        packed = [rows, depth * bits // 8]
        zeros = [rows, -(-blocks[0] * bits // 8)] if block else [-(-rows * bits // 8)]
        scales = np.abs(normal(EXPERTS, rows, *blocks)) / 16
        bytes_of = (
            integers(256, (EXPERTS, *shape)).astype(np.uint8)
            for shape in (packed, zeros)
        )
        whole, zero = bytes_of
        return [whole, scales, zero]

    first, second = codes(2 * INNER, WIDTH), codes(WIDTH, INNER)
    form = {"expert_weight_bits": bits, "k": 3, "activation_type": "swiglu"}
    form |= {"swiglu_fusion": 1, "weights_prepacked": 0, "activation_beta": 1.0}
    # with codes of 2 and 8 bits in blocks ONNX Runtime rounds rows to bytes
    form["tolerance"] = 2e-2 if bits in (2, 8) and block else 2e-5
    form |= {"block_size": block} if block else {}
    form |= {"compiled": compiled, "constants": (2, 3, 4, 5, 6, 11, 12)}
    x, router = normal(ROWS, WIDTH), normal(ROWS, EXPERTS)
    bias = normal(EXPERTS, 2 * INNER)
    given = [x, router, *first[:2], bias, *second[:2]]
    compare("QMoE", given, **form)
    more = [*[None] * 4, first[2], second[2], None, np.abs(normal(ROWS, EXPERTS))]
    compare("QMoE", [*given, *more], normalize_routing_weights=1, **form)


def test_halves_of_experts_may_be_apart(ours, close, normal):
    """Which ONNX Runtime has on GPUs only."""
    x, router = normal(ROWS, WIDTH), normal(ROWS, EXPERTS)
    gate, other = normal(EXPERTS, INNER, WIDTH), normal(EXPERTS, INNER, WIDTH)
    last = normal(EXPERTS, WIDTH, INNER)
    form = {"activation_type": "swiglu", "k": 2}
    found = [
        ours("MoE", [x, router, gate, None, last, None, other], **form)[0],
        ours(
            "MoE",
            [x, router, np.concatenate([gate, other], 1), None, last],
            swiglu_fusion=2,
            **form,
        )[0],
    ]
    turns = np.stack([gate, other], 2).reshape(EXPERTS, 2 * INNER, WIDTH)
    (wanted,) = ours("MoE", [x, router, turns, None, last], swiglu_fusion=1, **form)
    for each in found:
        close(each, wanted)


def test_what_experts_are_not(ours, normal):
    x, router = normal(ROWS, WIDTH), normal(ROWS, EXPERTS)
    first, last = normal(EXPERTS, INNER, WIDTH), normal(EXPERTS, WIDTH, INNER)
    given = [x, router, first, None, last]
    for form, why in (
        ({"k": EXPERTS + 1}, "chooses 6 experts"),
        ({"activation_type": "swiglu"}, "gated"),
    ):
        with pytest.raises(onnxplug.errors.NodeError, match=why):
            ours("MoE", given, **form)
    with pytest.raises(onnxplug.errors.NodeError, match="scores of 3 rows"):
        ours("MoE", [x, router[:3], *given[2:]])
