"""Cases that the suite does not have and models do: biases, states, many inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from onnx import helper

_OPSET: Final = 21


def extra_cases() -> Iterator[tuple[Any, int, tuple[Any, ...]]]:
    """Nodes, the opset they are of, and their inputs."""
    random = np.random.default_rng(7)

    def real(*shape: int) -> Any:
        return random.standard_normal(shape).astype(np.float32)

    def case(
        operator: str,
        *inputs: Any,
        outputs: int = 1,
        opset: int = _OPSET,
        **attributes: Any,
    ) -> tuple[Any, int, tuple[Any, ...]]:
        names = ["" if array is None else f"i{p}" for p, array in enumerate(inputs)]
        made = [f"o{position}" for position in range(outputs)]
        node = helper.make_node(operator, names, made, **attributes)
        arrays = tuple(None if array is None else np.asarray(array) for array in inputs)
        return node, opset, arrays

    bias = real(4)
    yield case("Conv", real(2, 3, 9, 8), real(4, 3, 3, 3), bias, pads=[1, 1, 1, 1])
    yield case(
        "Conv", real(1, 4, 9, 8), real(4, 1, 3, 3), bias, group=4, strides=[2, 2]
    )
    yield case("Conv", real(1, 3, 9, 8), real(4, 3, 1, 1), bias, kernel_shape=[1, 1])
    yield case(
        "Conv", real(1, 4, 9, 8), real(4, 2, 3, 3), bias, group=2, dilations=[2, 2]
    )
    yield case("Conv", real(2, 3, 9), real(4, 3, 3), bias, auto_pad="SAME_UPPER")
    yield case("Conv", real(1, 3, 5, 6, 7), real(4, 3, 2, 2, 2), bias, auto_pad="VALID")
    yield case("Conv", real(1, 3, 9, 8), real(4, 3, 3, 3), bias, auto_pad="SAME_LOWER")
    yield case(
        "ConvTranspose", real(1, 3, 5, 6), real(3, 4, 3, 3), bias, strides=[2, 2]
    )
    yield case(
        "ConvTranspose", real(1, 4, 5, 6), real(4, 2, 2, 2), bias, group=2,
        pads=[1, 1, 0, 0], output_padding=[1, 1], strides=[2, 2],
    )  # fmt: skip
    yield case("Gemm", real(3, 5), real(4, 5), bias, transB=1, alpha=0.5, beta=2.0)
    yield case("Gemm", real(5, 3), real(5, 4), transA=1)
    for count in (1, 2, 3, 5):
        parts = [real(2, 3) for _ in range(count)]
        yield case("Concat", *parts, axis=1)
        for operator in ("Max", "Min", "Sum", "Mean"):
            yield case(operator, *parts)
    yield case("Split", real(2, 9), np.array([2, 3, 4]), outputs=3, axis=1)
    yield case("Split", real(8), outputs=4, num_outputs=4)
    yield case("LayerNormalization", real(2, 3, 8), real(8))
    yield case(
        "LayerNormalization", real(2, 3, 8), real(8), real(8), axis=-1, epsilon=1e-5
    )
    yield case("BatchNormalization", real(2, 4, 3, 3), bias, bias, bias, abs(bias) + 1)
    yield case(
        "BatchNormalization", real(2, 4), bias, bias, bias, abs(bias) + 1, epsilon=1e-3,
        momentum=0.9,
    )  # fmt: skip
    for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
        for operator, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
            hidden = 5
            state = real(count, 2, hidden)
            arrays = [
                real(3, 2, 4), real(count, gates * hidden, 4),
                real(count, gates * hidden, hidden), real(count, 2 * gates * hidden),
                None, state,
            ]  # fmt: skip
            arrays += [real(count, 2, hidden)] if operator == "LSTM" else []
            attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
            if operator == "GRU":
                attributes["linear_before_reset"] = 1
            outputs = 3 if operator == "LSTM" else 2
            yield case(operator, *arrays, outputs=outputs, **attributes)
            yield case(operator, *arrays[:4], outputs=outputs, **attributes)
    image = real(1, 2, 4, 5)
    scales = np.array([1, 1, 2, 2], np.float32)
    sizes = np.array([1, 2, 7, 9])
    for mode, how in (
        (
            "nearest",
            {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        ),
        ("linear", {"coordinate_transformation_mode": "half_pixel"}),
        ("linear", {"coordinate_transformation_mode": "align_corners"}),
        ("linear", {"coordinate_transformation_mode": "pytorch_half_pixel"}),
        ("linear", {"coordinate_transformation_mode": "asymmetric"}),
        (
            "cubic",
            {"coordinate_transformation_mode": "half_pixel", "cubic_coeff_a": -0.75},
        ),
    ):
        yield case("Resize", image, None, scales, mode=mode, **how)
        yield case("Resize", image, None, None, sizes, mode=mode, **how)
    yield case("Gather", real(4, 5), np.array(2), axis=1)
    yield case("Gather", real(4, 5), np.array([[0, -1]]), axis=0)
    yield case("Gather", np.array([4, 5, 6]), np.array(1), axis=0)
    yield case("Slice", real(4, 9), np.array([1]), np.array([-1]), np.array([1]))
    yield case(
        "Slice",
        real(4, 9),
        np.array([8]),
        np.array([-100]),
        np.array([1]),
        np.array([-2]),
    )
    yield case(
        "Slice", real(4, 9), np.array([0]), np.array([2**63 - 1]), np.array([-1])
    )
    yield case(
        "Slice", np.array([4, 5, 6]), np.array([1]), np.array([2]), np.array([0])
    )
    kinds = ("float32", "float16", "int32", "int64", "bool", "uint8", "int8")
    for source in kinds:
        for target in kinds:
            values = np.array([0, 1, 2.7, 100, 0.4]).astype(source)
            number = helper.np_dtype_to_tensor_dtype(np.dtype(target))
            if source != target:
                yield case("Cast", values, to=number, opset=25)
    for columns, count, largest in ((8, 3, 1), (8, 3, 0), (300, 40, 1), (300, 40, 0)):
        # equal values, of which the first come first
        ties = random.integers(0, 4, (3, columns)).astype(np.float32)
        yield case("TopK", ties, np.array([count]), outputs=2, axis=1, largest=largest)
    for operator in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
        first = real(4, 5)
        yield case(operator, first, np.where(real(4, 5) > 0, first, real(4, 5)))
    yield case("Dropout", real(3, 4))
    yield case("Dropout", real(3, 4), np.float32(0.3))
    yield case("MatMul", real(2, 3, 4, 5), real(5, 6))
    yield case("MatMul", real(5), real(5, 6))
    yield case("Softmax", real(2, 3, 4), axis=-1)
    yield case("Softmax", real(3, 4), axis=1)
    yield case("Einsum", real(2, 3, 4), real(2, 5, 4), equation="bid,bjd->bij")
    yield case("Range", np.int64(0), np.int64(5), np.int64(1))
    quantized = random.integers(0, 255, (1, 2, 5, 5), np.uint8)
    kernel = random.integers(-100, 100, (3, 2, 3, 3), np.int8)
    scale = np.array([0.02, 0.03, 0.01], np.float32)
    yield case(
        "QLinearConv", quantized, np.float32(0.1), np.uint8(120), kernel, scale,
        np.zeros(3, np.int8), np.float32(0.4), np.uint8(128),
        np.array([10, -20, 30], np.int32),
    )  # fmt: skip
    yield case("DequantizeLinear", kernel, scale, np.zeros(3, np.int8), axis=0)
    yield case("DequantizeLinear", quantized, np.float32(0.1), np.uint8(120))
    yield case("QuantizeLinear", image, np.float32(0.02), np.uint8(120))
    yield case("QuantizeLinear", image, np.float32(0.02), np.int8(0))
    # of volumes, without auto_pad, which an engine may refuse by itself
    yield case("Conv", real(1, 3, 5, 6, 7), real(4, 3, 2, 2, 2), bias)
