"""Matrix products against float64 and Python integers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug_kernels import find_kernel


def run(op_type: str, *inputs: Any, version: int = 28, **attributes: Any) -> Any:
    kernel = find_kernel("", op_type, version)
    assert kernel is not None
    return kernel.bind(np, attributes, output_count=1)(*inputs)


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 2)),
        ((4,), (4, 2)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4, 2)),
        ((2, 1, 3, 4), (5, 4, 2)),
        ((2, 3, 4), (4,)),
        ((0, 3, 4), (4, 2)),
        ((3, 0), (0, 2)),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_matmul_broadcasts(a: tuple[int, ...], b: tuple[int, ...], dtype: Any) -> None:
    left, right = values(*a).astype(dtype), values(*b, seed=1).astype(dtype)
    y = run("MatMul", left, right)
    expected = np.matmul(left.astype(float), right.astype(float))
    assert isinstance(y, np.ndarray)
    assert y.dtype == dtype and y.shape == expected.shape
    tolerance = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(y.astype(float), expected, rtol=tolerance, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
def test_integer_products_are_exact(dtype: Any) -> None:
    top = np.iinfo(dtype).max // 4
    a = np.array([[top, 1], [3, 2]], dtype)
    b = np.array([[1, 2], [top, 3]], dtype)
    y = run("MatMul", a, b)
    assert y.dtype == dtype
    exact = np.matmul(a.astype(object), b.astype(object))
    bits = 8 * np.dtype(dtype).itemsize
    assert (y.astype(object) % 2**bits == exact % 2**bits).all()
    sums = run("Gemm", a, b, a)
    assert sums.dtype == dtype
    assert (sums.astype(object) % 2**bits == (exact + a) % 2**bits).all()


@pytest.mark.parametrize("transposed", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("c", [None, (), (1,), (2,), (3, 1), (3, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_gemm(
    transposed: tuple[int, int], c: tuple[int, ...] | None, dtype: Any
) -> None:
    a, b = values(3, 4).astype(dtype), values(4, 2, seed=1).astype(dtype)
    addend = None if c is None else values(*c, seed=2).astype(dtype)
    y = run(
        "Gemm",
        a.T if transposed[0] else a,
        b.T if transposed[1] else b,
        addend,
        alpha=0.5,
        beta=2.0,
        transA=transposed[0],
        transB=transposed[1],
    )
    expected = 0.5 * (a.astype(float) @ b.astype(float))
    if addend is not None:
        expected = expected + 2.0 * addend.astype(float)
    assert y.dtype == dtype
    tolerance = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(y.astype(float), expected, tolerance, 2e-6)


def test_gemm_leaves_its_inputs_alone() -> None:
    a, b, c = values(2, 3), values(3, 2), values(2)
    copies = a.copy(), b.copy(), c.copy()
    run("Gemm", a, b, c, beta=3.0)
    for before, after in zip(copies, (a, b, c), strict=True):
        np.testing.assert_array_equal(before, after)


def test_gemm_1_broadcasts_only_when_asked() -> None:
    a, b, c = values(3, 4), values(2, 4), values(2)
    y = run("Gemm", a, b, c, transB=1, broadcast=1, version=6)
    np.testing.assert_allclose(y, a @ b.T + c, rtol=1e-5)
    with pytest.raises(ValueError, match=r"C has shape \(2,\), expected \(3, 2\)"):
        run("Gemm", a, b, c, transB=1, version=6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_det(dtype: Any) -> None:
    x = np.array([[[1, 2], [3, 4]], [[2, 0], [0, 3]]], dtype)
    y = run("Det", x)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, [-2, 6], rtol=1e-3)
    single = run("Det", x[0])
    assert isinstance(single, np.ndarray) and single.shape == ()


EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("b q d , b k d -> b k q", [(2, 4, 5), (2, 3, 5)]),
    ("i,i->", [(4,), (4,)]),
    ("i,j->ij", [(3,), (4,)]),
    ("ij->ji", [(2, 3)]),
    ("ji", [(2, 3)]),
    ("ij->", [(2, 3)]),
    ("ii->i", [(3, 3)]),
    ("ii", [(3, 3)]),
    ("iji->j", [(3, 2, 3)]),
    ("iii->i", [(3, 3, 3)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
    ("...i,...i", [(2, 3), (3,)]),
    ("i...->...i", [(2, 3, 4)]),
    ("b...c,c->b...", [(2, 3, 4), (4,)]),
    ("...->...", [(2, 3)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
    ("ij,ik,il->jkl", [(5, 2), (5, 3), (5, 4)]),
    ("Ab,bA->Ab", [(2, 3), (3, 2)]),
    ("ab,cd->ac", [(2, 3), (4, 5)]),
    ("ij,ij->ij", [(2, 3), (2, 3)]),
    ("ij,j->i", [(2, 1), (3,)]),
    ("ij,jk->ik", [(0, 3), (3, 4)]),
    ("ij,jk->ik", [(2, 0), (0, 4)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_einsum(equation: str, shapes: list[tuple[int, ...]], dtype: Any) -> None:
    operands = [
        (4 * values(*shape, seed=seed)).astype(dtype)
        for seed, shape in enumerate(shapes)
    ]
    y = run("Einsum", *operands, equation=equation)
    expected = np.asarray(np.einsum(equation, *operands))
    assert isinstance(y, np.ndarray)
    assert y.dtype == dtype and y.shape == expected.shape
    assert not any(np.shares_memory(y, operand) for operand in operands)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int8])
def test_einsum_keeps_the_type(dtype: Any) -> None:
    x = np.arange(6).reshape(2, 3).astype(dtype)
    y = run("Einsum", x, x, equation="ij,kj->ik")
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.astype(int), [[5, 14], [14, 50]])


def test_einsum_says_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="has 2 terms, found 1 inputs"):
        run("Einsum", values(2, 2), equation="ij,jk->ik")
    with pytest.raises(ValueError, match=r"term 'ijk' .* rank 2"):
        run("Einsum", values(2, 2), equation="ijk->i")
