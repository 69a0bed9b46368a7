"""What a product by cuBLASLt is: plain data, found from views and checked against
memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.views import View

NBYTES: Final = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
"""Bytes of the elements that products are computed of."""

RESULTS: Final = {
    "f16": frozenset({"f16", "f32"}),
    "bf16": frozenset({"bf16", "f32"}),
    "f32": frozenset({"f32"}),
    "f64": frozenset({"f64"}),
}
"""Those that a result may have, by those of the factors."""

ACTIVATIONS: Final = ("", "relu", "gelu")
"""What is done to results; ``gelu`` is the approximation by tanh."""

_MOST: Final = (1 << 31) - 1
"""Elements along an axis, at most."""


class Matrix(Parameters):
    """A matrix, or a batch of such, as cuBLASLt has them: column by column.

    Attributes:
        rows, columns: as they lie in memory.
        leading: elements from a column to the next.
        apart: elements from a matrix of the batch to the next.
    """

    rows: int
    columns: int
    leading: int
    apart: int

    def extent(self, batches: int) -> int:
        """Elements from the first to behind the last one."""
        last = (self.columns - 1) * self.leading + self.rows - 1
        return (batches - 1) * self.apart + last + 1


class Product(Parameters):
    """D = act(op(A)·op(B) + C + bias), all in columns.

    A row-major product is one of the transposed matrices in the other order, so A is
    what the model has on the right.

    Attributes:
        element: of the factors.
        result: of C and D, and of the bias.
        a, b, d: as they lie.
        c: how what is added lies, which has the shape of D; ``None``: nothing is.
        turned: whether A and B are transposed.
        batches: how many products.
        has_bias: whether there is one number for each row of D.
        activation: one of :data:`ACTIVATIONS`.
        tf32: whether factors of float32 may be rounded to TF32.
        uses_measured: whether the algorithm is the one that was measured to be the
            fastest, where some were.
        measures: the same, and that they are measured where they were not; only beside
            the former.
        seconds: after which no other is measured; 0: all are.
    """

    element: str
    result: str
    a: Matrix
    b: Matrix
    d: Matrix
    turned: tuple[bool, bool]
    batches: int = 1
    c: Matrix | None = None
    has_bias: bool = False
    activation: str = ""
    tf32: bool = False
    uses_measured: bool = False
    measures: bool = False
    seconds: float = 0.0

    @property
    def depth(self) -> int:
        """Products of a sum."""
        return self.a.rows if self.turned[0] else self.a.columns

    @property
    def flops(self) -> int:
        """Operations of all products."""
        return 2 * self.batches * self.d.rows * self.d.columns * self.depth

    @property
    def needed(self) -> list[int]:
        """Bytes from the first element to the end of A, of B, of C and of the bias if
        there are such, and of D."""
        size, wide, count = NBYTES[self.element], NBYTES[self.result], self.batches
        needed = [self.a.extent(count) * size, self.b.extent(count) * size]
        if self.c is not None:
            needed.append(self.c.extent(count) * wide)
        if self.has_bias:
            needed.append(self.d.rows * wide)
        return [*needed, self.d.extent(count) * wide]

    def check(self, nbytes: Sequence[int]) -> None:
        """Check that it fits together and into memory.

        Args:
            nbytes: what is there of each that :attr:`needed` is of.

        Raises:
            ValueError: it does not.
        """
        if self.result not in RESULTS.get(self.element, ()):
            raise ValueError(f"products of {self.element} are not of {self.result}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"the activation is {self.activation!r}; expected one of {ACTIVATIONS}"
            )
        c = self.d if self.c is None else self.c
        matrices = self.a, self.b, c, self.d
        for matrix in matrices:
            if not (
                0 < matrix.rows <= matrix.leading <= _MOST
                and 0 < matrix.columns <= _MOST
                and matrix.apart >= 0
            ):
                raise ValueError(f"no matrix lies as {tuple(matrix)} says")
        a, b = (
            (each.columns, each.rows) if turned else (each.rows, each.columns)
            for each, turned in zip((self.a, self.b), self.turned, strict=True)
        )
        if (a[0], b[1]) != (self.d.rows, self.d.columns) or a[1] != b[0]:
            raise ValueError(
                f"matrices of {a} and {b} give none of {tuple(self.d[:2])}"
            )
        if c[:2] != self.d[:2]:
            raise ValueError(f"to {tuple(self.d[:2])} is added {tuple(c[:2])}")
        if self.batches < 1 or (self.batches > 1 and self.d.apart < self.d.extent(1)):
            raise ValueError(
                f"{self.batches} results {self.d.apart} elements apart overlap"
            )
        needed = self.needed
        if len(needed) != len(nbytes) or any(
            wanted > there for wanted, there in zip(needed, nbytes, strict=True)
        ):
            raise ValueError(
                f"a product needs memory of {needed} bytes; given are {list(nbytes)}"
            )


def product_of(a: View, b: View, out: View, *, tf32: bool) -> Product | None:
    """The product of *a* and *b* in *out*; ``None`` if cuBLASLt has no such layout.

    Args:
        a: [batch0, batch1, M, K].
        b: [batch0, batch1, K, N].
        out: [batch0, batch1, M, N].
    """
    element, result = element_of(a.dtype), element_of(out.dtype)
    if element != element_of(b.dtype) or result not in RESULTS.get(element or "", ()):
        return None
    assert element is not None and result is not None
    if 0 in (*a.shape, *b.shape, *out.shape):
        return None
    batches = [_batches(view) for view in (a, b, out)]
    laid = [_laid(view) for view in (a, b, out)]
    if None in batches or None in laid:
        return None
    (left, left_turned), (right, right_turned), (whole, turned) = (
        each for each in laid if each is not None
    )
    apart_a, apart_b, apart_out = (each or 0 for each in batches)
    count = out.shape[0] * out.shape[1]
    if turned or (count > 1 and apart_out < whole.extent(1)):
        return None
    return Product(
        element,
        result,
        right._replace(apart=apart_b),
        left._replace(apart=apart_a),
        whole._replace(apart=apart_out),
        (right_turned, left_turned),
        count,
        tf32=tf32 and element == "f32",
    )


def added_of(view: View) -> Matrix | None:
    """How what is added to results lies; ``None`` if cuBLASLt has no such layout.

    Args:
        view: [batch0, batch1, M, N].
    """
    apart, laid = _batches(view), _laid(view)
    if apart is None or laid is None or laid[1] or 0 in view.shape:
        return None
    return laid[0]._replace(apart=apart)


def _laid(view: View) -> tuple[Matrix, bool] | None:
    """The last two axes seen as columns, and whether that is the matrix itself and not
    the transposed one; the latter is preferred, being what rows are."""
    (rows, columns), (down, along) = view.shape[-2:], view.strides[-2:]
    for turned, inner, outer, step, leading in (
        (False, columns, rows, along, down),
        (True, rows, columns, down, along),
    ):
        if inner > 1 and step != 1:
            continue
        if outer == 1:
            leading = inner
        if leading >= inner and max(inner, outer, leading) <= _MOST:
            return Matrix(inner, outer, leading, 0), turned
    return None


def _batches(view: View) -> int | None:
    """How far the matrices of two axes of batches are apart, as one axis; ``None`` if
    they are not."""
    (outer, inner), (far, near) = view.shape[:2], view.strides[:2]
    if outer == 1:
        apart = near if inner > 1 else 0
    elif inner == 1:
        apart = far
    elif far == near * inner:
        apart = near
    else:
        return None
    return apart if apart >= 0 else None
