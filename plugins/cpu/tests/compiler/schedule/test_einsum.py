"""Einsum as products and sums: against numpy's, the array tier, and plans on numpy."""

from __future__ import annotations

import numpy as np
import pytest

from ..lowered import graph, lowered

EQUATIONS = [
    ("bhqd,bhkd->bhqk", [(2, 3, 5, 8), (2, 3, 7, 8)]),
    ("bij,jk", [(2, 5, 17), (17, 9)]),
    ("i,j->ji", [(5,), (7,)]),
    ("ij,ij->", [(4, 6), (4, 6)]),
    ("bhwc,hkc->bhwk", [(3, 5, 6, 8), (5, 7, 8)]),
    ("abcd,cbe->eda", [(2, 3, 4, 5), (4, 3, 6)]),
    ("ii->i", [(5, 5)]),
    ("iij->j", [(4, 4, 3)]),
    ("...ij->...ji", [(2, 3, 4)]),
    ("...ij,...jk->...ik", [(2, 1, 4, 5), (3, 5, 6)]),
    ("ab,bc,cd->ad", [(3, 4), (4, 5), (5, 2)]),
    ("ab,cd->", [(3, 4), (2, 5)]),
    ("ij,j->i", [(0, 4), (4,)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS, ids=str)
def test_equations(equation: str, shapes: list[tuple[int, ...]]) -> None:
    names = [f"x{number}" for number in range(len(shapes))]
    typed = [f"float[{','.join(map(str, shape))}]" for shape in shapes]
    given = ", ".join(f"{t} {n}" for t, n in zip(typed, names, strict=True))
    body = f'y = Einsum <equation = "{equation}"> ({", ".join(names)})'
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, shape).astype(np.float32) / 2 for shape in shapes]
    expected = np.einsum(equation, *arrays)
    sizes = f"[{','.join(map(str, expected.shape))}]" if expected.ndim else ""
    model = lowered(graph(given, f"float{sizes} y", body))
    assert model.tiers() == {"compiled": 1}
    (found,) = model.check(*arrays)
    np.testing.assert_array_equal(found, expected)


def test_axes_that_lie_apart_are_not_copied() -> None:
    body = 'y = Einsum <equation = "bhwc,hck->bhwk"> (a, b)'
    inputs, output = "float[3,5,6,8] a, float[5,8,16] b", "float[3,5,6,16] y"
    found = lowered(graph(inputs, output, body)).commands()
    assert found == ["Einsum bhwc,hck->bhwk 5×3×6×16×8"]
