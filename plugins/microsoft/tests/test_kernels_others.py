"""The remaining operators of ``com.microsoft`` against ONNX Runtime."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from onnxplug_kernels import UnsupportedAttribute
from onnxplug_testing.oracles import reference

from .node_oracles import (
    assert_as_onnx_runtime,
    find_kernel,
    run,
)

FLOATS = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE}
TEXTS = np.array(
    [
        "Hello World",
        "I love  computer science !",
        "",
        "ab-cd_ef, gh",
        "añb ✓c",
        "aab abb",
        "  ",
        "x-x",
    ],
    dtype=object,
)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("mark", [0, 1])
@pytest.mark.parametrize(
    "form",
    [
        {"separators": [" "]},
        {"separators": [" ", "-"]},
        {"separators": ["[ ,]+"]},
        {"separators": ["a|ab"]},
        {"separators": ["o", " "]},
        {"separators": ["l+", "[-_]"]},
        {"separators": ["x*"]},
        {"separators": [""]},
        {"tokenexp": "[a-z]+"},
        {"tokenexp": "[a-zA-Z]{2}"},
        {"tokenexp": "a|ab"},
        {"tokenexp": "a?(ab)?"},
        {"tokenexp": "."},
        {"tokenexp": r"\w+"},
        {"tokenexp": r"\bc"},
        {"tokenexp": "b$"},
        {"tokenexp": "a*"},
        {"tokenexp": "✓|ñ"},
        {"tokenexp": "(?i)h"},
        {"tokenexp": "[a-zA-Zñ0-9]+"},
        {"tokenexp": r"[\w ,]+"},
        {"tokenexp": r"[\s.]+"},
    ],
)
def test_tokens(mark: int, form: dict[str, Any]) -> None:
    of_characters = form in ({"separators": [""]}, {"tokenexp": "."})
    for fewest in (1,) if of_characters else (1, 2, 3):
        for x in (TEXTS, TEXTS.reshape(2, 4)):
            assert_as_onnx_runtime(
                "Tokenizer",
                x,
                outputs=(TensorProto.STRING,),
                mark=mark,
                mincharnum=fewest,
                pad_value="#",
                **form,
            )


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (2,)])
def test_tokens_of_nothing(shape: Any) -> None:
    assert_as_onnx_runtime(
        "Tokenizer",
        np.full(shape, "", dtype=object),
        outputs=(TensorProto.STRING,),
        mark=1,
        mincharnum=1,
        pad_value="#",
        separators=[" "],
    )


@pytest.mark.parametrize(
    ("shape", "changes", "message"),
    [
        ((1, 1, 8), {}, r"not \(1, 1, 8\)"),
        ((8,), {"tokenexp": "a"}, "separators or tokenexp"),
        ((8,), {"separators": ()}, "separators or tokenexp"),
        ((8,), {"mincharnum": 0}, "mincharnum 0"),
        ((8,), {"separators": ("",), "mincharnum": 2}, "no character has 2"),
    ],
)
def test_tokens_that_are_refused(shape: Any, changes: Any, message: str) -> None:
    attributes = {"mark": 0, "mincharnum": 1, "pad_value": "", "separators": (" ",)}
    with pytest.raises(ValueError, match=message):
        run(
            "Tokenizer",
            TEXTS.reshape(shape),
            **{**attributes, **changes},
        )


@pytest.mark.parametrize(
    "form", [{"tokenexp": "(a|aa)+b"}, {"separators": ["(a*)*b", "x"]}]
)
def test_tokens_do_not_take_for_ever(form: dict[str, Any]) -> None:
    began = time.monotonic()
    run(
        "Tokenizer",
        np.array(["a" * 2000], object),
        mark=0,
        mincharnum=1,
        pad_value="",
        **form,
    )
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("seed", [0, 7, 2**31 + 5])
@pytest.mark.parametrize(
    ("positive", "kind"), [(1, TensorProto.UINT32), (0, TensorProto.INT32)]
)
def test_hashes(seed: int, positive: int, kind: int) -> None:
    generator = np.random.default_rng(0)
    arrays = [
        np.array(["", "a", "ab", "abc", "abcd", "hello ✓", "x" * 37, "a"], object),
        TEXTS.reshape(2, 4),
    ]
    for dtype in (np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64):
        arrays.append(generator.integers(0, 1000, (3, 4)).astype(dtype))
    arrays.append(np.zeros((0, 2), np.int32))
    for x in arrays:
        assert_as_onnx_runtime(
            "MurmurHash3", x, outputs=(kind,), positive=positive, seed=seed
        )


def test_hashes_are_of_the_bytes_that_a_text_was_read_from() -> None:
    """Bytes of a model that are no UTF-8 become lone surrogates, and no others do."""
    octets = b"\xff\xfe\x01a"
    text = np.array([octets.decode(errors="surrogateescape")], object)
    number = np.frombuffer(octets, np.uint32)
    hashes = [run("MurmurHash3", x) for x in (text, number)]
    assert hashes[0] == hashes[1]
    with pytest.raises(UnicodeEncodeError):
        run("MurmurHash3", np.array(["\ud800"], object))


def test_forms_that_are_refused() -> None:
    for op_type, attributes, message in (
        ("Rfft", {"normalized": 1}, "normalized 1; supported: 0"),
        ("Irfft", {"onesided": 0, "signal_ndim": 1}, "onesided 0; supported: 1"),
        ("CropAndResize", {"mode": "area"}, "mode 'area'"),
        ("GatherBlockQuantized", {"bits": 3}, "bits 3; supported: 2, 4, 8"),
    ):
        kernel = find_kernel(op_type)
        with pytest.raises(UnsupportedAttribute, match=message):
            kernel.bind(np, attributes, output_count=1)
    with pytest.raises(ValueError, match="takes a vector"):
        run("Unique", normal(2, 3))


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "message"),
    [
        ("Irfft", (normal(2, 3),), {"signal_ndim": 1}, "parts"),
        ("Rfft", (normal(2, 3),), {"signal_ndim": -1}, "signal_ndim"),
        (
            "CropAndResize",
            (
                *(normal(1, 2, 4, 4), normal(1, 4)),
                *(np.array([1], np.int32), np.array([2, 2], np.int32)),
            ),
            {},
            "index 1",
        ),
    ],
)
def test_inputs_and_numbers_that_are_refused(
    op_type: str, inputs: Any, attributes: Any, message: str
) -> None:
    with pytest.raises((ValueError, IndexError), match=message):
        run(op_type, *inputs, **attributes)


@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [("MurmurHash3", {"positive": 2}), ("QGemm", {"transA": -1})],
)
def test_a_flag_is_0_or_1(op_type: str, attributes: dict[str, int]) -> None:
    bound = find_kernel(op_type).bind(np, attributes, output_count=1)
    with pytest.raises(ValueError, match="expected 0 or 1"):
        bound(normal(1))


@pytest.mark.parametrize("shape", [(4, 4), (3, 2, 5, 5), (1, 1), (0, 3, 3)])
def test_inverse(shape: Any) -> None:
    for dtype, kind in FLOATS.items():
        x = normal(*shape, dtype=dtype) + 3 * np.eye(shape[-1], dtype=dtype)
        eps = float(np.finfo(dtype).eps)
        assert_as_onnx_runtime(
            "Inverse", x, outputs=(kind,), rtol=100 * eps, atol=100 * eps
        )
        # ONNX Runtime loses more in float16 than its last digit
        half = x.astype(np.float16)
        found = run("Inverse", half)
        exact = np.linalg.inv(half.astype(np.float64))
        assert found.dtype == np.float16
        np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-4)


def test_no_inverse() -> None:
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        run("Inverse", np.ones((2, 2), np.float32))


@pytest.mark.parametrize(
    "x", [[2, 1, 1, 3, 4, 3], [], [np.nan, 1, np.nan, -0.0, 0.0, 1]]
)
def test_distinct_elements(x: Any) -> None:
    outputs = (TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT64)
    assert_as_onnx_runtime("Unique", np.array(x, np.float32), outputs=outputs)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [0, 1])
def test_grid_sample(mode: str, padding_mode: str, align_corners: int) -> None:
    assert_as_onnx_runtime(
        "GridSample",
        *(normal(2, 3, 5, 6), normal(2, 4, 7, 2)),
        rtol=1e-5,
        atol=4e-6,
        mode=mode,
        padding_mode=padding_mode,
        align_corners=align_corners,
    )


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(3, 4), (1, 1), (7, 1), (2, 2)])
@pytest.mark.parametrize("shape", [(2, 3, 6, 5), (2, 1, 1, 1)])
def test_crops(mode: str, size: Any, shape: Any) -> None:
    rois = np.random.default_rng(0).uniform(-0.2, 1.2, (5, 4)).astype(np.float32)
    rois[:2] = [[0, 0, 1, 1], [1, 1, 0, 0]]
    images = np.array([0, 1, 1, 0, 1], np.int32)
    for count in (5, 0):
        assert_as_onnx_runtime(
            "CropAndResize",
            *(normal(*shape), rois[:count], images[:count]),
            np.array(size, np.int32),
            mode=mode,
            extrapolation_value=-2.5,
        )


@pytest.mark.parametrize("shape", [(8,), (3, 16), (2, 0, 6)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_fourier_transforms_of_one_axis(shape: Any, dtype: Any) -> None:
    """ONNX Runtime has them on CUDA only: against ONNX's DFT, and there and back."""
    x = normal(*shape, dtype=dtype)
    found = run("Rfft", x)
    assert (found.dtype, found.shape) == (dtype, (*shape[:-1], shape[-1] // 2 + 1, 2))
    tolerance = float(np.finfo(dtype).eps) * 16
    if x.size:
        signal = x.astype(np.float64)[..., None]
        axis = np.array(x.ndim - 1, np.int64)
        (expected,) = reference("DFT", signal, None, axis, onesided=1)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    back = run("Irfft", found, signal_ndim=1)
    assert back.dtype == dtype
    np.testing.assert_allclose(back, x, rtol=tolerance, atol=tolerance)


def test_fourier_transforms_of_two_axes() -> None:
    x = normal(3, 4, 6, dtype=np.float64)
    found = run("Rfft", x, signal_ndim=2)
    rows, columns = np.arange(4), np.arange(6)
    waves = np.exp(-2j * np.pi * np.outer(rows, rows) / 4)
    exact = waves @ x @ np.exp(-2j * np.pi * np.outer(columns, columns[:4]) / 6)
    np.testing.assert_allclose(found[..., 0], exact.real, atol=1e-12)
    np.testing.assert_allclose(found[..., 1], exact.imag, atol=1e-12)
    back = run("Irfft", found, signal_ndim=2)
    np.testing.assert_allclose(back, x, atol=1e-12)


def test_an_index_of_no_image_is_an_error() -> None:
    with pytest.raises(IndexError):
        run(
            "CropAndResize",
            *(normal(1, 1, 2, 2), np.zeros((1, 4), np.float32)),
            *(np.array([1], np.int32), np.array([1, 1], np.int32)),
        )
