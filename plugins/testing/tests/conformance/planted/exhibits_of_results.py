"""What mistakes in results and claims do, and the EPs without mistakes do not."""

from __future__ import annotations

import numpy as np

import onnxplug
from onnxplug import ep

from .exhibit import (
    F,
    X,
    is_wrong,
    made_by,
    session_of,
    shows,
)

# what is computed


@shows("broadcasts-by-modulo")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x, float[4,1] z) => (float[4,3] y) { y = Mul (x, z) }"
    return is_wrong(factory, text, {"x": X, "z": X[:, :1]})


@shows("takes-negative-axes-for-the-last")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { y = Softmax <axis = -2> (x) }"
    return is_wrong(factory, text, {"x": X})


@shows("leaves-results-of-empty-inputs-unwritten")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x, float[4,n] e, float[n,3] f) => (float[4,3] y)
        { a = Exp (x) b = MatMul (e, f) y = Add (a, b) }"""
    nothing = {"e": np.zeros((4, 0), F), "f": np.zeros((0, 3), F)}
    something = {"e": np.ones((4, 2), F), "f": np.ones((2, 3), F)}
    feeds = [{"x": X, **something}, {"x": X, **nothing}] * 3
    return is_wrong(factory, text, *feeds)


@shows("rounds-quotients-down")
def _(factory: ep.EpFactory) -> bool:
    text = "g (int32[3] x, int32[3] z) => (int32[3] y) { y = Div (x, z) }"
    x, z = np.array([-7, 7, 8], np.int32), np.array([2, -2, 2], np.int32)
    return is_wrong(factory, text, {"x": x, "z": z})


@shows("ignores-an-attribute")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x, float[3,3] w, float[3] c) => (float[4,3] y)
        { y = Gemm <beta = 0.5> (x, w, c) }"""
    return is_wrong(factory, text, {"x": X, "w": X[:3], "c": X[0]})


@shows("computes-float64-in-float32")
def _(factory: ep.EpFactory) -> bool:
    text = "g (double[n] x) => (double[1] y) { y = ReduceSum (x) }"
    x = np.array([1e8, 1, -1e8])
    return is_wrong(factory, text, {"x": x})


@shows("computes-all-versions-as-the-newest")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[2,2,3] x) => (float[2,2,3] y) { y = Softmax (x) }"
    return is_wrong(factory, text, {"x": X.reshape(2, 2, 3)}, opset=11)


@shows("takes-inputs-for-contiguous")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, "g (float[3,4] x) => (float[3,4] y) { y = Neg (x) }"):
        (y,) = made[0].run([X.T], [None], None)
    return not np.array_equal(y, -X.T)


@shows("claims-integers-that-it-computes-in-float32")
def _(factory: ep.EpFactory) -> bool:
    text = "g (int64[2,2] x) => (int64[2,2] y) { y = MatMul (x, x) }"
    x = np.array([[1, 2**25 + 1], [0, 1]])
    return is_wrong(factory, text, {"x": x})


@shows("computes-with-the-shapes-of-another-specialisation")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[n,3] x) => (float[1,1] y) { y = ReduceMean (x) }"
    return is_wrong(factory, text, {"x": X}, {"x": X[:2]})


@shows("turns-images-a-second-time")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[2,3,4,5] x) => (float[2,3,1,1] y)
        { a = Relu (x) y = GlobalAveragePool (a) }"""
    x = np.random.default_rng(1).normal(size=(2, 3, 4, 5)).astype(F)
    try:
        return is_wrong(factory, text, {"x": x})
    except onnxplug.errors.OnnxplugError:
        return True


# claims


@shows("gives-back-what-it-claimed")
def _(factory: ep.EpFactory) -> bool:
    text = "g (bool[3] c, float[3] x) => (float[3] y) { y = Where (c, x, x) }"
    with session_of(factory, text) as session:
        return all(node.ep != factory.name for node in session.explain().nodes)


@shows("refuses-without-words")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { y = Selu (x) }"
    with session_of(factory, text) as session:
        (node,) = session.explain().nodes
        reasons = [each.reason for each in node.passed_over if each.ep == factory.name]
        return not all(reason.detail for reason in reasons)
