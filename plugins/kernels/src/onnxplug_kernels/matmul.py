"""Matrix products: MatMul, Gemm, Einsum, and the determinant."""

from __future__ import annotations

import math
from typing import Any

from onnxplug_kernels.arrays import in_computing_dtype
from onnxplug_kernels.registry import operator


@operator("MatMul", since=1)
def matmul(xp: Any, a: Any, b: Any) -> Any:
    return xp.asarray(in_computing_dtype(_matmul, xp, a, b))


@operator("Gemm", since=7)
def gemm(
    xp: Any,
    a: Any,
    b: Any,
    c: Any | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"Gemm of {a.shape} and {b.shape}; expected two matrices")
    wide = xp.computing_dtype(a.dtype)
    left, right = (
        xp.astype(x.T if transposed else x, wide, copy=False)
        for x, transposed in ((a, transA), (b, transB))
    )
    y = xp.matmul(left, right)
    if alpha != 1:
        y = _scaled(xp, y, alpha)
    if c is not None and beta != 0:
        addend = xp.astype(c, wide, copy=False)
        y += addend if beta == 1 else _scaled(xp, addend, beta)
    return xp.astype(y, a.dtype, copy=False)


@operator("Gemm", since=1, until=6)
def gemm_1(
    xp: Any,
    a: Any,
    b: Any,
    c: Any,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    broadcast: int = 0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    expected = (a.shape[1 if transA else 0], b.shape[0 if transB else 1])
    if not broadcast and c.shape != expected:
        raise ValueError(
            f"Gemm without broadcast: C has shape {c.shape}, expected {expected}"
        )
    return gemm(xp, a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)


@operator("Det", since=11)
def det(xp: Any, x: Any) -> Any:
    """The determinants [...] of square matrices [..., n, n]."""
    return xp.asarray(in_computing_dtype(lambda xp, x: xp.library.linalg.det(x), xp, x))


@operator("Einsum", since=12)
def einsum(xp: Any, *operands: Any, equation: str) -> Any:
    """Sum of products by index labels, one operand after the other.

    As the pairwise contraction of numpy's einsum, but each pair is a batched matrix
    product (BLAS), whatever labels they share.
    """
    dtype = operands[0].dtype
    terms, output = parse_equation(equation, [operand.ndim for operand in operands])
    wide = xp.computing_dtype(dtype)
    labelled = [
        _diagonal(xp, xp.astype(operand, wide, copy=False), term)
        for operand, term in zip(operands, terms, strict=True)
    ]
    result, labels = labelled[0]
    for position, (operand, term) in enumerate(labelled[1:], start=1):
        needed = set(output).union(*(term for _, term in labelled[position + 1 :]))
        result, labels = _contract(xp, result, labels, operand, term, needed)
    result, labels = _sum_out(xp, result, labels, set(output))
    result = xp.permute_dims(result, tuple(labels.index(label) for label in output))
    # of a single operand the result may be a view
    return xp.asarray(xp.astype(result, dtype, copy=len(operands) == 1))


def _matmul(xp: Any, a: Any, b: Any) -> Any:
    if a.ndim > 2 and b.ndim == 2:
        # one large product instead of one for each matrix of the stack
        rows = xp.reshape(a, (math.prod(a.shape[:-1]), a.shape[-1]))
        return xp.reshape(xp.matmul(rows, b), (*a.shape[:-1], b.shape[-1]))
    return xp.matmul(a, b)


def _scaled(xp: Any, x: Any, factor: float) -> Any:
    return xp.astype(x * factor, x.dtype, copy=False)


def parse_equation(
    equation: str, ranks: list[int]
) -> tuple[list[list[str]], list[str]]:
    """Labels of each operand and of the result.

    The axes of an ellipsis get the labels "0", "1", …, the last axis "0", so that they
    line up from the right as in broadcasting.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(ranks):
        raise ValueError(
            f"equation {equation!r} has {len(texts)} terms, found {len(ranks)} inputs"
        )
    terms = [
        _labels(text, rank, equation) for text, rank in zip(texts, ranks, strict=True)
    ]
    ellipsis = max(
        ([label for label in term if label.isdigit()] for term in terms), key=len
    )
    if arrow:
        before, dots, after = right.partition("...")
        output = [*before, *(ellipsis if dots else ()), *after]
        known = {label for term in terms for label in term}
        if len(set(output)) != len(output) or not known.issuperset(output):
            raise ValueError(
                f"the result of equation {equation!r} has a label twice, or one that "
                f"no term has"
            )
        return terms, output
    named = [label for term in terms for label in term if not label.isdigit()]
    once = sorted(label for label in set(named) if named.count(label) == 1)
    return terms, [*ellipsis, *once]


def _labels(text: str, rank: int, equation: str) -> list[str]:
    before, dots, after = text.partition("...")
    if not all(label.isalpha() for label in before + after):
        raise ValueError(
            f"term {text!r} of equation {equation!r} has labels that are no letters"
        )
    hidden = rank - len(before) - len(after)
    if hidden < 0 or (hidden and not dots):
        raise ValueError(
            f"term {text!r} of equation {equation!r} does not fit an input of rank "
            f"{rank}"
        )
    return [*before, *(str(axis) for axis in reversed(range(hidden))), *after]


def _diagonal(xp: Any, x: Any, labels: list[str]) -> tuple[Any, list[str]]:
    """*x* with the axes that have the same label reduced to their diagonal."""
    labels = list(labels)
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if x.shape[first] != x.shape[second]:
                raise ValueError(
                    f"label {label!r} stands for sizes {x.shape[first]} and "
                    f"{x.shape[second]}; expected equal ones"
                )
            x = xp.diagonal(x, first, second)
            del labels[second], labels[first]
            labels.append(label)
    return x, labels


def _sum_out(
    xp: Any, x: Any, labels: list[str], kept: set[str]
) -> tuple[Any, list[str]]:
    """*x* summed over the axes whose label is not *kept*."""
    axes = tuple(axis for axis, label in enumerate(labels) if label not in kept)
    if axes:
        x = xp.sum(x, axis=axes, dtype=x.dtype)
    return x, [label for label in labels if label in kept]


def _contract(
    xp: Any, a: Any, a_labels: list[str], b: Any, b_labels: list[str], needed: set[str]
) -> tuple[Any, list[str]]:
    """The product of two operands, summed over shared labels that nobody needs."""
    a, a_labels = _sum_out(xp, a, a_labels, needed.union(b_labels))
    b, b_labels = _sum_out(xp, b, b_labels, needed.union(a_labels))
    shared = [label for label in a_labels if label in b_labels]
    batch = [label for label in shared if label in needed]
    inner = [label for label in shared if label not in needed]
    rows = [label for label in a_labels if label not in shared]
    columns = [label for label in b_labels if label not in shared]
    sizes = dict(zip(a_labels, a.shape, strict=True))
    for label, size in zip(b_labels, b.shape, strict=True):
        if sizes.setdefault(label, size) == 1:
            sizes[label] = size

    def arranged(x: Any, labels: list[str], order: list[str]) -> Any:
        x = xp.permute_dims(x, tuple(labels.index(label) for label in order))
        # an axis of size 1 broadcasts over its label, also where it is summed over
        shape = tuple(
            sizes[label] if label in inner else size
            for label, size in zip(order, x.shape, strict=True)
        )
        return xp.broadcast_to(x, shape)

    def size_of(labels: list[str]) -> int:
        return math.prod(sizes[label] for label in labels)

    left = arranged(a, a_labels, batch + rows + inner)
    right = arranged(b, b_labels, batch + inner + columns)
    depth = len(batch)
    product = xp.matmul(
        xp.reshape(left, (*left.shape[:depth], size_of(rows), size_of(inner))),
        xp.reshape(right, (*right.shape[:depth], size_of(inner), size_of(columns))),
    )
    labels = batch + rows + columns
    shape = [sizes[label] for label in labels]
    return xp.reshape(product, shape), labels
