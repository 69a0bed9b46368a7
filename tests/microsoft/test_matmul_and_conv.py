"""Products and convolutions with what is fused into them."""

from __future__ import annotations

import numpy as np
import onnx.reference.ops.op_conv as conv
import pytest

import onnxplug

OPSETS = (11, 13, 18, 21)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("operator", ["FusedMatMul", "TransposeMatMul"])
def test_products_of_transposed_matrices(compare, normal, opset, operator):
    for left in ((3, 4), (4,)):
        for turn in range(4):
            turn_a, turn_b = turn & 1, turn >> 1
            a, b = normal(*left), normal(4, 5)
            a = a.T.copy() if turn_a else a
            b = b.T.copy() if turn_b else b
            form = {"opset": opset, "transA": turn_a, "transB": turn_b}
            compare(operator, [a, b], **form, alpha=0.5)


@pytest.mark.parametrize("opset", OPSETS)
def test_products_of_transposed_batches(compare, normal, opset):
    operator, form = "FusedMatMul", {"opset": opset}
    compare(operator, [normal(2, 6, 4, 3), normal(2, 6, 4, 5)], transA=1, **form)
    compare(operator, [normal(3, 2, 6, 4), normal(2, 6, 4, 5)], transBatchA=1, **form)
    inputs = [normal(4, 2, 6, 3), normal(2, 6, 4, 5)]
    compare(operator, inputs, transBatchA=1, transA=1, **form)
    inputs = [normal(2, 6, 3, 4), normal(5, 2, 6, 4)]
    compare(operator, inputs, transBatchB=1, transB=1, alpha=2.0, **form)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize(
    ("activation", "parameters"),
    [
        ("Relu", {}),
        ("Tanh", {}),
        ("Sigmoid", {}),
        ("LeakyRelu", {"alpha": 0.3}),
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
        ("Clip", {"alpha": -0.5, "beta": 0.4}),
    ],
)
def test_activations(compare, normal, opset, activation, parameters):
    if activation != "Clip":  # ONNX Runtime's FusedGemm does not have it
        named = {f"activation_{name}": value for name, value in parameters.items()}
        compare(
            "FusedGemm",
            [normal(3, 4), normal(4, 5), normal(5)],
            opset=opset,
            activation=activation,
            alpha=0.7,
            beta=0.3,
            **named,
        )
    listed = {"activation_params": list(parameters.values())} if parameters else {}
    compare(
        "FusedConv",
        [normal(1, 3, 7, 8), normal(4, 3, 3, 3), normal(4)],
        opset=opset,
        activation=activation,
        pads=[1, 1, 1, 1],
        strides=[2, 1],
        **listed,
    )


@pytest.mark.parametrize(
    "activation", ["Elu", "Softplus", "Softsign", "ThresholdedRelu"]
)
def test_activations_of_products_only(compare, normal, activation):
    inputs = [normal(3, 4), normal(4, 5)]
    compare("FusedGemm", inputs, activation=activation, activation_alpha=0.3)


@pytest.mark.parametrize("opset", (10, *OPSETS))
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_a_quantized_product_is_that_of_onnx(compare, ours, integers, opset, dtype):
    """ONNX Runtime has the operator in ONNX's domain only."""
    a, b = integers(90, (2, 3, 6), dtype), integers(90, (6, 5), dtype)
    scales = np.linspace(0.01, 0.05, 5, dtype=np.float32)
    zeros = integers(40, (5,), dtype)
    one, zero = np.array(0.02, np.float32), np.array(7, dtype)
    for b_scale, b_zero in ((one, zero), (scales, zeros)):
        inputs = [a, one, zero, b, b_scale, b_zero, np.array(0.1, np.float32), zero]
        compare("QLinearMatMul", inputs, domain="", opset=opset, dtypes=[dtype])
        (wanted,) = ours(
            "QLinearMatMul", inputs, domain="", opset=opset, dtypes=[dtype]
        )
        (found,) = ours("QLinearMatMul", inputs, opset=opset)
        assert found.dtype == dtype and len(np.unique(wanted)) > 5
        np.testing.assert_array_equal(found, wanted)


def test_an_activation_after_a_product(ours, close, normal):
    """ONNX Runtime has it on GPUs only."""
    a, b = normal(2, 4, 3), normal(4, 5)
    form = {"activation": "LeakyRelu", "activation_alpha": 0.1, "alpha": 2.0}
    (y,) = ours("FusedMatMulActivation", [a, b], transA=1, **form)
    product = 2 * a.astype(np.float64).swapaxes(1, 2) @ b
    close(y, np.where(product > 0, product, 0.1 * product))


@pytest.mark.parametrize("opset", OPSETS)
def test_a_sum_comes_before_the_activation(compare, normal, opset):
    inputs = [normal(1, 4, 7, 8), normal(4, 2, 3, 3), None, normal(1, 4, 5, 6)]
    compare("FusedConv", inputs, opset=opset, activation="Relu", group=2)


@pytest.mark.parametrize("opset", OPSETS)
def test_channels_last(ours, close, compare, normal, integers, opset):
    x, w, b = normal(2, 4, 7, 8), normal(6, 2, 3, 3), normal(6)
    form = {"group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1]}
    wide = (array.astype(np.float64) for array in (x, w, b))
    wanted = conv._conv_implementation(
        *wide, "NOTSET", [1, 1], 2, [3, 3], form["pads"], form["strides"]
    ).transpose(0, 2, 3, 1)
    last = x.transpose(0, 2, 3, 1).copy()
    close(ours("NhwcConv", [last, w, b], opset=opset, **form)[0], wanted)
    skip = normal(*wanted.shape)
    (y,) = ours(
        "NhwcFusedConv", [last, w, b, skip], opset=opset, activation="Relu", **form
    )
    close(y, np.maximum(wanted + skip, 0))
    if opset >= 12:
        image = integers(255, (1, 6, 7, 3), np.uint8)
        compare(
            "NhwcMaxPool", [image], opset=opset, kernel_shape=[2, 3], strides=[2, 2]
        )


@pytest.mark.parametrize("channels_last", [0, 1])
def test_quantized_convolution(compare, integers, channels_last):
    x = integers(255, (1, 3, 6, 7), np.uint8)
    x = x.transpose(0, 2, 3, 1).copy() if channels_last else x
    w = integers(16, (4, 3, 3, 3), np.int8) - np.int8(8)
    inputs = [
        x,
        np.array(0.1, np.float32),
        np.array(100, np.uint8),
        w,
        np.array(0.05, np.float32),
        np.array(0, np.int8),
        np.array(0.3, np.float32),
        np.array(120, np.uint8),
        integers(9, (4,), np.int32),
    ]
    # a result may be rounded to either neighbour
    compare(
        "QLinearConv",
        inputs,
        constants=range(1, 9),
        channels_last=channels_last,
        tolerance=1 / 100,
    )


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("constants", [(), (2,)], ids=["computed", "constant"])
def test_transposed_convolution_with_pads_as_input(compare, normal, opset, constants):
    x, w, pads = normal(1, 2, 5, 6), normal(2, 3, 3, 3), np.array([1, 0, 1, 1])
    form = {"opset": opset, "constants": constants}
    operator = "ConvTransposeWithDynamicPads"
    compare(operator, [x, w, pads], **form, dilations=[2, 1])
    inputs = [x, w, pads, normal(3)]
    compare(operator, inputs, **form, strides=[2, 2], output_padding=[1, 1])


@pytest.mark.parametrize("opset", [11, 21])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["none", "packed", "floats"])
def test_weights_of_few_bits(ours, close, normal, integers, opset, bits, zeros):
    for size, block in ((32, 16), (40, 32), (64, 32)):
        blocks, rows = -(-size // block), 5
        packed = integers(256, (rows, blocks, block * bits // 8), np.uint8)
        scales, bias, a = normal(rows, blocks), normal(rows), normal(2, 3, size)
        middle = np.full((rows, blocks), 1 << (bits - 1), np.float64)
        points = None
        if zeros == "floats":
            points = 3 * normal(rows, blocks)
            middle = points.astype(np.float64)
        elif zeros == "packed":
            points = integers(256, (rows, -(-blocks * bits // 8)), np.uint8)
            middle = _levels(points, bits)[:, :blocks]
        levels = _levels(packed.reshape(rows, -1), bits).reshape(rows, blocks, block)
        weights = ((levels - middle[..., None]) * scales[..., None]).reshape(rows, -1)
        (y,) = ours(
            "MatMulNBits",
            [a, packed, scales, points, None, bias],
            opset=opset,
            constants=(1, 2, 3, 5),
            K=size,
            N=rows,
            bits=bits,
            block_size=block,
        )
        close(y, a.astype(np.float64) @ weights[:, :size].T + bias)


@pytest.mark.parametrize("zeros", [False, True])
def test_weights_whose_blocks_are_told_row_by_row(ours, close, normal, integers, zeros):
    size, rows, block = 72, 5, 32
    packed, scales = integers(256, (rows, 3, 16), np.uint8), normal(rows, 3)
    points = integers(256, (rows, 2), np.uint8) if zeros else None
    middle = _levels(points, 4)[:, :3] if zeros else np.full((rows, 3), 8.0)
    a, form = normal(4, size), {"K": size, "N": rows, "bits": 4, "block_size": block}
    order = integers(3, size, np.int32)
    levels = _levels(packed.reshape(rows, -1), 4)[:, :size]
    weights = (levels - middle[:, order]) * scales[:, order].astype(np.float64)
    for compiled in (True, False):
        inputs = [a, packed, scales, points, order]
        constants = (1, 2, 3, 4) if compiled else (1, 2, 3)
        (y,) = ours(
            "MatMulNBits", inputs, constants=constants, compiled=compiled, **form
        )
        close(y, a.astype(np.float64) @ weights.T)
    inputs[4] = order + 2
    with pytest.raises(onnxplug.errors.OnnxplugError, match="numbers of no block"):
        ours("MatMulNBits", inputs, constants=(1, 2, 3, 4), **form)


def _levels(packed: np.ndarray, bits: int) -> np.ndarray:
    """The first element is in the lowest bits."""
    width = 1 << bits
    parts = [packed.astype(int) // width**n % width for n in range(8 // bits)]
    return np.stack(parts, -1).reshape(packed.shape[0], -1).astype(np.float64)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_weights_of_few_bits_as_onnx_runtime_has_them(compare, normal, integers, dtype):
    inputs = [normal(2, 3, 32), integers(256, (4, 2, 8), np.uint8), normal(4, 2)]
    compare(
        "MatMulNBits",
        [array if array.dtype == np.uint8 else array.astype(dtype) for array in inputs],
        constants=(1, 2),
        tolerance=1e-5 if dtype is np.float32 else 3e-3,
        K=32,
        N=4,
        block_size=16,
    )


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances(compare, ours, normal, opset, metric):
    form = {"opset": opset, "metric": metric}
    for dtype in (np.float32, np.float64):
        for rows in (0, 1, 5):
            a, b = normal(rows, 7).astype(dtype), 1 + normal(4, 7).astype(dtype)
            compare("CDist", [a, b], **form)
            compare("CDist", [a, b], constants=(1,), **form)
        (found,) = ours("CDist", [b, b], compiled=True, **form)
        assert (found >= 0).all()  # equal rows must not give NaN
