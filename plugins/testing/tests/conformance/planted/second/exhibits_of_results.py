"""What the second set's mistakes in what is computed do, and others do not."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

import onnxplug
from onnxplug import ep

from ..device_memory import DeviceArray
from ..exhibit import (
    F,
    X,
    contexts_of,
    differ,
    is_wrong,
    made_by,
    model_of,
    session_of,
    shows,
)

# what is computed


@shows("loses-nan-in-relu")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[3] x) => (float[3] y) { y = Relu (x) }"
    return is_wrong(factory, text, {"x": np.array([1, np.nan, -1], F)})


@shows("clips-indices")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x, int64[2] i) => (float[2,3] y) { y = Gather (x, i) }"
    return is_wrong(factory, text, {"x": X, "i": np.array([-1, 1])})


@shows("transposes-the-other-way")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[2,2,2] x) => (float[2,2,2] y)
        { y = Transpose <perm = [1, 2, 0]> (x) }"""
    return is_wrong(factory, text, {"x": np.arange(8, dtype=F).reshape(2, 2, 2)})


@shows("launches-whole-blocks-only")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[n] x) => (float[n] y) { y = Exp (x) }"
    feeds = [{"x": np.linspace(i, 1 + i, 300, dtype=F)} for i in range(3)]
    return is_wrong(factory, text, *feeds)


@shows("casts-fractions-to-false")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[3] x) => (bool[3] y) { y = Cast <to = 9> (x) }"
    return is_wrong(factory, text, {"x": np.array([0, 0.5, -2], F)})


@shows("compares-by-subtracting")
def _(factory: ep.EpFactory) -> bool:
    text = "g (int32[2] x, int32[2] z) => (bool[2] y) { y = Less (x, z) }"
    x, z = np.array([-(2**31), 1], np.int32), np.array([1, 2], np.int32)
    return is_wrong(factory, text, {"x": x, "z": z})


@shows("reduces-axis-after-axis")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[2,2,2] x) => (float[2] y)
        <int64[2] a = {0, 1}> { y = ReduceSum <keepdims = 0> (x, a) }"""
    return is_wrong(factory, text, {"x": np.arange(8, dtype=F).reshape(2, 2, 2)})


@shows("takes-a-column-for-a-row")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[3,3] x, float[3,3] w, float[3,1] c) => (float[3,3] y)
        { y = Gemm (x, w, c) }"""
    return is_wrong(factory, text, {"x": X[:3], "w": X[1:], "c": X[:3, :1]})


@shows("reduces-all-axes-for-none")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[n,1] x) => (float[n,1] y)
        { y = ReduceSum <noop_with_empty_axes = 1> (x) }"""
    try:
        return is_wrong(factory, text, {"x": X[:, :1]})
    except onnxplug.errors.EpError:
        return True  # of another shape


@shows("keeps-specialisations-by-their-elements")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[n,m] x) => (float[1,m] y)
        <int64[1] a = {0}> { y = ReduceMean (x, a) }"""
    return is_wrong(factory, text, {"x": X}, {"x": X.reshape(2, 6)})


@shows("pools-two-axes-of-any-image")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[2,3,4,2,2] x) => (float[2,3,1,1,1] y)
        { a = Relu (x) y = GlobalMaxPool (a) }"""
    x = np.random.default_rng(1).normal(size=(2, 3, 4, 2, 2)).astype(F)
    try:
        return is_wrong(factory, text, {"x": x})
    except onnxplug.errors.OnnxplugError:
        return True


# claims


@shows("claims-casts-to-any-type")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (string[4,3] y) { y = Cast <to = 8> (x) }"
    try:
        with session_of(factory, text) as session:
            session.run(None, {"x": X})
    except onnxplug.errors.OnnxplugError:
        return True
    return False


BRANCHES = """g (float[4,3] x, bool c) => (float[4,3] y) {
    a = Neg (x)
    y = If (c) <
        then_branch = t () => (float[4,3] p) { p = Selu (a) },
        else_branch = e () => (float[4,3] q) { q = Exp (a) }
    >
}"""


@shows("remembers-claims-by-the-index")
def _(factory: ep.EpFactory) -> bool:
    with session_of(factory, BRANCHES) as session:
        taken = {
            node.op_type for node in session.explain().nodes if node.ep == factory.name
        }
    return taken != {"Neg", "Exp"}


@shows("fails-where-no-rank-is-known")
def _(factory: Any) -> bool:
    text = """g (float[4,3] x, int64[n] s) => (float[k,3] z)
        { a = Reshape (x, s) z = MatMul (a, x) }"""
    seen = []

    class Noting(factory.provider):  # type: ignore[misc]
        def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
            try:
                return super().get_capability(graph)  # type: ignore[no-any-return]
            except TypeError as error:
                seen.append(error)
                raise

    factory.provider = Noting
    with contextlib.suppress(onnxplug.errors.OnnxplugError), session_of(factory, text):
        pass
    return bool(seen)


# memory


@shows("gives-memory-back-twice")
def _(factory: Any) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { a = Neg (x) y = Exp (a) }"
    contexts = contexts_of(factory)
    with session_of(factory, text) as session:
        session.run(None, {"x": X})
        context = contexts[0]
        stream = context.create_stream()
        gone = context.device.empty((5, 7), ep.DataType.FLOAT32, stream)
        del gone
        one, other = (
            context.device.empty((5, 7), ep.DataType.FLOAT32, stream) for _each in "ab"
        )
        stream.close()
        return bool(np.shares_memory(one.content, other.content))


@shows("copies-in-the-order-of-memory")
def _(factory: Any) -> bool:
    target = DeviceArray(np.zeros((3, 4), F))
    factory.transfer().copy([(X.T, target)], None)
    return not np.array_equal(target.content, X.T)


@shows("shares-weights-by-their-names")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x) => (float[4,3] y)
        <float[3] w = {{{}, 2, 3}}> {{ y = Mul (x, w) }}"""
    with session_of(factory, text.format(1)):
        other = onnxplug.InferenceSession(
            model_of(text.format(7)), providers=[factory.name, "cpu"]
        )
        with other:
            (y,) = other.run(None, {"x": X})
    return differ(y, X * np.array([7, 2, 3], F))


@shows("stacks-along-the-first-axis")
def _(factory: Any) -> bool:
    contexts = contexts_of(factory)
    with session_of(factory, "g (float[4,3] x) => (float[4,3] y) { y = Neg (x) }"):
        arrays = [DeviceArray(X), DeviceArray(-X)]
        stacked = contexts[0].stack(arrays, 1, None)
    return not np.array_equal(stacked.content, np.stack([X, -X], 1))


@shows("fills-in-place-what-it-reads-later")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x) => (float[4,3] y, float[4,3] z)
        { y = Neg (x) a = Abs (y) z = Sub (x, a) }"""
    made = made_by(factory)
    with session_of(factory, text):
        (partition,) = made
        x = DeviceArray(X.copy())
        bound = x if partition.in_place else None
        y, z = partition.run([x], [bound, None], None)
    return differ(y.content, -X) or differ(z.content, X - np.abs(X))


@shows("lends-rows-of-its-weights")
def _(factory: ep.EpFactory) -> bool:
    text = """g (int64 i) => (float[3] y)
        <float[2,3] w = {1, 2, 3, 4, 5, 6}> { y = Gather (w, i) }"""
    with session_of(factory, text) as session:
        (first,) = session.run(None, {"i": np.array(1)})
        before = first.copy()
        first[...] = 0
        (second,) = session.run(None, {"i": np.array(1)})
    return not np.array_equal(before, second)


@shows("remembers-results-by-the-array")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { y = Neg (x) }"
    with session_of(factory, text) as session:
        x = X.copy()
        session.run(None, {"x": x})
        x += 1
        (y,) = session.run(None, {"x": x})
    return not np.array_equal(y, -x)
