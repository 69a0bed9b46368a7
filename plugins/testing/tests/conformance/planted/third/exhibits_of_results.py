"""What the third set's mistakes in what is computed do, and others do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnxplug
from onnxplug import ep

from .. import program
from ..device_memory import SPACE, DeviceArray
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

NEG = "g (float[4,3] x) => (float[4,3] y) { y = Neg (x) }"

IMAGE = np.random.default_rng(1).normal(size=(1, 2, 4, 5)).astype(F)


# what is computed


@shows("divides-infinities-in-tanh")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[3] x) => (float[3] y) { y = Tanh (x) }"
    return is_wrong(factory, text, {"x": np.array([-100, 0.5, 100], F)})


@shows("pads-both-ends-alike")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[1,2,4,5] x) => (float[1,2,4,5] y)
        { y = MaxPool <kernel_shape = [2, 1], pads = [1, 0, 0, 0]> (x) }"""
    return is_wrong(factory, text, {"x": IMAGE})


@shows("closes-up-inputs-that-are-left-out")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x, float m) => (float[4,3] y) { y = Clip (x, , m) }"
    return is_wrong(factory, text, {"x": X, "m": np.array(1, F)})


@shows("concatenates-eight-at-most")
def _(factory: ep.EpFactory) -> bool:
    text = f"""g (float[4,3] x) => (float[36,3] y)
        {{ y = Concat <axis = 0> ({", ".join("x" * 9)}) }}"""
    return is_wrong(factory, text, {"x": X})


@shows("overflows-in-softmax")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { y = Softmax (x) }"
    return is_wrong(factory, text, {"x": X * 50})


@shows("pads-behind-for-same-lower")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[1,2,4,5] x) => (float[1,2,4,5] y)
        { y = MaxPool <kernel_shape = [2, 1], auto_pad = "SAME_LOWER"> (x) }"""
    return is_wrong(factory, text, {"x": IMAGE})


@shows("interleaves-channels-of-depthwise-convolutions")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[1,2,4,5] x, float[4,1,1,1] w) => (float[1,4,4,5] y)
        { y = Conv <group = 2> (x, w) }"""
    w = np.arange(1, 5, dtype=F).reshape(4, 1, 1, 1)
    return is_wrong(factory, text, {"x": IMAGE, "w": w})


@shows("packs-weights-for-the-first-reader")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,2] x) => (float[4,2] y) <float[2,2] w = {1, 2, 3, 4}>
        { a = Gemm (x, w) y = Gemm <transB = 1> (a, w) }"""
    return is_wrong(factory, text, {"x": X[:, :2]})


# claims


@shows("claims-sums-of-products-twice")
def _(factory: Any) -> bool:
    text = """g (float[3,3] x) => (float[3,3] y)
        { a = MatMul (x, x) y = Add (a, x) }"""
    seen = []

    class Noting(factory.provider):  # type: ignore[misc]
        def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
            seen.append(super().get_capability(graph))
            return seen[-1]  # type: ignore[no-any-return]

    factory.provider = Noting
    try:
        with session_of(factory, text):
            pass
    except onnxplug.errors.OnnxplugError:
        pass
    indices = [index for claim in seen[0].claims for index in claim.nodes]
    return len(indices) != len({*indices})


@shows("takes-axes-that-it-does-not-know-for-all")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x, int64[1] a) => (float[k,m] y)
        { n = Neg (x) y = ReduceSum (n, a) }"""
    try:
        return is_wrong(factory, text, {"x": X, "a": np.array([0])})
    except onnxplug.errors.OnnxplugError:
        return True  # of another shape


@shows("claims-means-of-old-opsets")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[n,3] x) => (float[n,1] y)
        { a = Neg (x) y = ReduceMean <axes = [1]> (a) }"""
    try:
        return is_wrong(factory, text, {"x": X}, opset=13)
    except onnxplug.errors.OnnxplugError:
        return True  # of another shape


# memory


@shows("takes-parts-of-what-goes")
def _(factory: Any) -> bool:
    contexts = contexts_of(factory)
    with session_of(factory, NEG):
        device = contexts[0].device
        whole = device.empty((4, 3), ep.DataType.FLOAT32)
        np.copyto(whole.content, X)
        part = contexts[0].take(whole, 0, 1, None)
        del whole
        other = device.empty((4, 3), ep.DataType.FLOAT32)
        other.content.fill(7)
        return not np.array_equal(part.content, X[1])


@shows("counts-free-memory-as-live")
def _(factory: Any) -> bool:
    allocator = factory.allocator()
    array = allocator.empty((4, 3), ep.DataType.FLOAT32)
    before = allocator.live_bytes
    del array
    return bool(allocator.live_bytes == before)


@shows("says-that-it-copies-to-any-device")
def _(factory: Any) -> bool:
    here, there = ep.MemoryLocation(SPACE, 0), ep.MemoryLocation("elsewhere", 0)
    return bool(factory.transfer().can_copy(here, there))


@shows("converts-into-what-is-bound")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, NEG):
        try:
            made[0].run([X], [np.zeros((2, 4, 3), np.int32)], None)
        except onnxplug.errors.OutputMismatch:
            return False
        return True


# failure


@shows("counts-bytes-in-32-bits")
def _(factory: Any) -> bool:
    try:
        factory.allocator().empty((1 << 15, 1 << 15), ep.DataType.FLOAT32)
    except MemoryError:
        return False
    except ValueError:
        return True
    raise AssertionError("there is not so much memory")


@shows("leaks-in-runs-that-fail")
def _(factory: Any) -> bool:
    text = """g (float[1000] x, float[1] w) => (float[1000] y, float[1000000000] z)
        <int64[1] s = {1000000000}> { y = Neg (x) z = Expand (w, s) }"""
    contexts, made = contexts_of(factory), made_by(factory)
    with session_of(factory, text):
        inputs = [DeviceArray(np.ones(1000, F)), DeviceArray(np.ones(1, F))]
        live = []
        for _each in range(3):
            try:
                made[0].run(inputs, [None, None], None)
            except MemoryError:
                live.append(contexts[0].live_bytes)
    return bool(live[-1] > live[0])


# specialisation


@shows("compiles-one-partition-at-a-time")
def _(factory: Any) -> bool:
    text = "g (float[n,3] x) => (float[1,1] y) { y = ReduceMean (x) }"
    asked: list[tuple[Any, ep.Partition]] = []

    class Noting(factory.provider):  # type: ignore[misc]
        def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
            asked.append((self, partition))
            return super().compile(partition)  # type: ignore[no-any-return]

    factory.provider = Noting
    with session_of(factory, text) as session, pytest.MonkeyPatch.context() as patch:
        for rows in (4, 2):
            session.run(None, {"x": X[:rows]})
        (provider, first), (_same, second) = asked
        generate, left = program.generate, [second]

        def between(source: str) -> Any:
            if left:
                provider.compile(left.pop())
            return generate(source)

        patch.setattr(program, "generate", between)
        (y,) = provider.compile(first).run([X], [None], None)
    return differ(y, np.full((1, 1), X.mean()))


@shows("declines-in-runs-what-no-shapes-change")
def _(factory: ep.EpFactory) -> bool:
    text = "g (double[n] x) => (double[n] y) { y = Tanh (x) }"
    with session_of(factory, text) as session:
        try:
            session.run(None, {"x": np.ones(3)})
        except onnxplug.errors.OnnxplugError:
            return True
    return False


# preferences, factory


@shows("takes-two-transposes-for-none")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[2,2,2] x) => (float[2,2,2] y) {
        a = Neg (x) b = Transpose <perm = [1, 2, 0]> (a)
        c = Transpose <perm = [1, 2, 0]> (b) y = Exp (c)
    }"""
    return is_wrong(factory, text, {"x": np.arange(8, dtype=F).reshape(2, 2, 2)})


@shows("releases-with-a-session-what-all-share")
def _(factory: ep.EpFactory) -> bool:
    with session_of(factory, NEG) as session:
        onnxplug.InferenceSession(model_of(NEG), providers=[factory.name]).close()
        try:
            session.run(None, {"x": X})
        except onnxplug.errors.OnnxplugError:
            return True
    return False
