"""Operators that ONNX took over later."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

OPSETS = (11, 14, 18, 23)


@pytest.mark.parametrize("opset", OPSETS)
def test_range(compare, opset):
    numbers = [np.array(n, np.float32) for n in (1, 9.5, 2)]
    compare("Range", numbers, opset=opset)
    compare("Range", [np.array([3]), np.array([7])], opset=opset)


@pytest.mark.parametrize("opset", OPSETS[1:])
def test_trilu(compare, normal, opset):
    compare("Trilu", [normal(2, 4, 5), np.array(1)], opset=opset)
    compare("Trilu", [normal(4, 5)], opset=opset, upper=0)


@pytest.mark.parametrize("opset", OPSETS)
def test_pad(compare, normal, opset):
    pads = np.array([[1, 0, 2, 1]])
    value = np.array([3.0], np.float32)
    compare("Pad", [normal(2, 3), pads, value], opset=opset)
    compare("Pad", [normal(4, 3), pads[0]], opset=opset, mode="reflect")
    cut = np.array([1, -1, 2, 1])
    compare("Pad", [normal(4, 3), cut], opset=opset, mode="edge")


@pytest.mark.parametrize("opset", OPSETS)
def test_expand_dims(compare, normal, opset):
    axis = np.array(-1, np.int32)
    compare("ExpandDims", [normal(4, 3), axis], opset=opset, constants=(1,))
    if opset >= 13:
        compare("ExpandDims", [normal(4, 3), axis], opset=opset)


@pytest.mark.parametrize("opset", OPSETS)
def test_gather_nd(compare, normal, opset):
    indices = np.array([[1, 0], [2, 2]], np.int32)
    compare("GatherND", [normal(4, 3), indices], opset=opset)
    compare("GatherND", [normal(4, 3), indices[:, :1]], opset=opset)


@pytest.mark.parametrize("opset", OPSETS)
def test_what_onnx_runtime_has_on_gpus_only(ours, close, normal, integers, opset):
    table, indices = normal(9, 4), integers(9, (2, 3), np.int64)
    close(ours("TorchEmbedding", [table, indices], opset=opset)[0], table[indices])
    a, b = normal(3, 4, 2), normal(3, 4, 2)
    x = a[..., 0].astype(np.complex128) + 1j * a[..., 1]
    y = b[..., 0].astype(np.complex128) + 1j * b[..., 1]
    for operator, wanted in (("ComplexMul", x * y), ("ComplexMulConj", x * y.conj())):
        found = ours(operator, [a, b], opset=opset)[0]
        close(found, np.stack([wanted.real, wanted.imag], -1))


@pytest.mark.parametrize("opset", OPSETS)
def test_is_all_finite(ours, opset):
    values = [1, 2], [], [np.nan, 1], [np.inf], [-np.inf, np.nan], [1e4]
    for dtype, array in itertools.product((np.float16, np.float32, np.float64), values):
        x = np.array(array, dtype)
        x = x**70 if dtype is np.float64 else x
        for name, good in (
            ("", np.isfinite(x)),
            ("isinf_only", ~np.isinf(x)),
            ("isnan_only", ~np.isnan(x)),
        ):
            attributes = {name: 1} if name else {}
            (found,) = ours("IsAllFinite", [x], opset=opset, **attributes)
            assert found.shape == () and found == good.all()
