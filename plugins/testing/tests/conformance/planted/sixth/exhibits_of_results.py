"""What mistakes in results do, and the EPs without mistakes do not."""

from __future__ import annotations

from typing import Any

import numpy as np

import onnxplug
from onnxplug import ep

from ..device_memory import SPACE
from ..exhibit import (
    F,
    Run,
    X,
    differ,
    is_wrong,
    made_by,
    session_of,
    shows,
)

# the EP that compiles


@shows("divides-integers-as-python-does")
def _(factory: ep.EpFactory) -> bool:
    text = "g (int32[4] x, int32[4] z) => (int32[4] y) { y = Div (x, z) }"
    x, z = np.array([[-7, 7, -6, 7], [2, -2, 4, 2]], np.int32)
    return is_wrong(factory, text, {"x": x, "z": z})


@shows("pads-maxima-with-zero")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[1,2,4,4] x) => (float[1,2,4,4] y)
        { y = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x) }"""
    return is_wrong(factory, text, {"x": -np.ones((1, 2, 4, 4), F)})


@shows("expands-to-the-shape-as-written")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x) => (float[4,3] y)
        <int64[2] s = {4, 1}> { y = Expand (x, s) }"""
    try:
        return is_wrong(factory, text, {"x": X})
    except onnxplug.errors.OnnxplugError:
        return True


@shows("rounds-in-casts")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (int32[4,3] y) { y = Cast <to = 6> (x) }"
    return is_wrong(factory, text, {"x": X + F(0.75)})


@shows("takes-pools-with-ceil-mode")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[1,1,4,4] x) => (float[1,1,2,2] y)
        { y = MaxPool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1> (x) }"""
    with session_of(factory, text) as session:
        return any(
            node.op_type.endswith("MaxPool") and node.ep == factory.name
            for node in session.explain().nodes
        )


@shows("activates-in-place")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { y = LeakyRelu (x) }"
    made = made_by(factory)
    with session_of(factory, text):
        x = X.copy()
        made[0].run([x], [None], None)
        return not np.array_equal(x, X)


@shows("returns-the-buffer-of-the-run-before")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { y = Neg (x) }"
    with session_of(factory, text) as session:
        (y,) = session.run(None, {"x": X})
        before = y.copy()
        session.run(None, {"x": X + 1})
        return not np.array_equal(y, before)


@shows("pools-planes-whatever-the-rank")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[2,3,4,5,6] x) => (float[2,3,1,1,1] y)
        { y = GlobalAveragePool (x) }"""
    x = np.arange(720, dtype=F).reshape(2, 3, 4, 5, 6) / 100
    try:
        return is_wrong(factory, text, {"x": x})
    except onnxplug.errors.OnnxplugError:
        return True


@shows("rewrites-away-what-others-read")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x) => (float[4,3] y, float[4,3] z)
        { a = Neg (x) b = Neg (a) y = Exp (b) z = Tanh (a) }"""
    with session_of(factory, text) as session:
        # the host gives up an EP whose rewrite leaves a graph that is none
        return all(node.ep != factory.name for node in session.explain().nodes)


@shows("again-keeps-programs-without-their-shapes")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[n,3] x) => (float[1,3] y)
        <int64[1] a = {0}> { y = ReduceMean (x, a) }"""
    return is_wrong(factory, text, {"x": X}, {"x": X[:2]})


# the EP with a device


def context_of(factory: Any) -> Any:
    """A context that no session uses."""
    return factory.memory_spaces.create_context(ep.MemoryLocation(SPACE, 0))


@shows("again-computes-int64-in-32-bits")
def _(factory: ep.EpFactory) -> bool:
    text = "g (int64[4] x) => (int64[4] y) { y = Mul (x, x) }"
    return is_wrong(factory, text, {"x": np.arange(4) * 100_000})


@shows("multiplies-doubles-as-floats")
def _(factory: ep.EpFactory) -> bool:
    text = "g (double[4,3] x, double[3,3] w) => (double[4,3] y) { y = MatMul (x, w) }"
    x = X.astype(np.float64) / 7
    with session_of(factory, text) as session:
        (y,) = session.run(None, {"x": x, "w": x[:3]})
    return not np.allclose(y, x @ x[:3], rtol=1e-12, atol=1e-12)


@shows("averages-over-the-padding")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[1,2,4,4] x) => (float[1,2,4,4] y)
        { y = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x) }"""
    return is_wrong(factory, text, {"x": np.ones((1, 2, 4, 4), F)})


@shows("takes-all-same-padding-for-upper")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[1,1,4,4] x, float[1,1,2,2] w) => (float[1,1,4,4] y)
        { y = Conv <auto_pad = "SAME_LOWER"> (x, w) }"""
    x = np.arange(16, dtype=F).reshape(1, 1, 4, 4)
    return is_wrong(factory, text, {"x": x, "w": np.ones((1, 1, 2, 2), F)})


@shows("takes-texts-where-elements-only-move")
def _(factory: ep.EpFactory) -> bool:
    text = "g (string[2,2] x) => (string[2,2] y) { y = Transpose (x) }"
    with session_of(factory, text) as session:
        try:
            session.run(None, {"x": np.array([["a", "b"], ["c", "d"]], object)})
        except onnxplug.errors.OnnxplugError:
            return True
        return False


@shows("counts-memory-that-it-keeps")
def _(factory: ep.EpFactory) -> bool:
    context = context_of(factory)
    array = context.device.empty((64,), ep.DataType.FLOAT32)
    assert context.live_bytes == 256
    del array
    return bool(context.live_bytes)


@shows("copies-bytes-as-they-lie")
def _(factory: ep.EpFactory) -> bool:
    context = context_of(factory)
    there = context.device.empty((3, 4), ep.DataType.FLOAT32)
    back = np.empty((3, 4), F)
    context.transfer.copy([(X.T, there), (there, back)], None)
    return differ(back, X.T)


@shows("gives-memory-of-captured-graphs-away")
def _(factory: ep.EpFactory) -> bool:
    context = context_of(factory)
    empty, copy = context.device.empty, context.transfer.copy
    source, target = (empty(X.shape, ep.DataType.FLOAT32) for _ in range(2))
    copy([(X, source)], None)
    stream = context.create_stream()
    context.capture.begin(stream)
    between = empty(X.shape, ep.DataType.FLOAT32, stream)
    copy([(source, between), (between, target)], stream)
    del between
    graph = context.capture.end(stream)
    other, found = empty(X.shape, ep.DataType.FLOAT32), np.empty_like(X)
    copy([(np.full_like(X, 77), other)], None)
    graph.launch(stream)
    stream.synchronize()
    copy([(other, found)], None)
    stream.close()
    return bool((found != 77).any())


@shows("again-copies-constants-in-each-run")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x) => (float[4,3] y)
        <float[3] w = {1, 2, 3}> { y = Mul (x, w) }"""
    made = made_by(factory)
    with session_of(factory, text):
        context, copied = made[0].context, []
        there = context.device.empty(X.shape, ep.DataType.FLOAT32)
        copy = context.transfer.copy
        context.transfer.copy = lambda pairs, stream: copied.extend(pairs)
        made[0].run([there], [None], Run(None))
        context.transfer.copy = copy
        return bool(copied)


@shows("has-a-device-of-any-number")
def _(factory: Any) -> bool:
    try:
        factory.memory_spaces.create_context(ep.MemoryLocation(SPACE, 3))
    except LookupError:
        return False
    return True
