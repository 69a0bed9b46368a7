"""Arrays that are made of numbers, and bits that are seen as others, compiled."""

from __future__ import annotations

import numpy as np

from .test_hardmax_and_dropout import compiled, model

RNG = np.random.default_rng(5)


def test_bits_are_seen_as_others() -> None:
    proto = model(
        "i = BitCast<to=6>(x) n = Neg(i) y = BitCast<to=1>(n) e = EyeLike<k=1>(x)",
        26,
        "float[A, B] y, float[A, B] e",
        "float[A, B] x",
    )
    x = RNG.standard_normal((4, 6)).astype(np.float32)
    y, e = compiled(proto, {"x": x})
    np.testing.assert_array_equal(y.view(np.int32), -x.view(np.int32))
    np.testing.assert_array_equal(e, np.eye(4, 6, 1, np.float32))


def test_many_elements_of_a_constant() -> None:
    proto = model(
        "c = ConstantOfShape(s) y = Add(c, x)", 22, "float[A] y", "float[A] x"
    )
    proto.graph.initializer.add(name="s", data_type=7, dims=[1], int64_data=[1 << 21])
    x = RNG.standard_normal(1 << 21).astype(np.float32)
    (y,) = compiled(proto, {"x": x})
    np.testing.assert_array_equal(y, x)
