"""What mistakes in results do, and the EPs without mistakes do not."""

from __future__ import annotations

from typing import Any

import numpy as np

import onnxplug
from onnxplug import ep

from ..device_memory import SPACE
from ..exhibit import (
    F,
    X,
    contexts_of,
    differ,
    is_wrong,
    made_by,
    session_of,
    shows,
)

# of the EP that compiles


def seen_by(factory: Any) -> list[tuple[Any, Any, Any]]:
    """The EPs, partitions, and what is compiled of these, from now on."""
    seen: list[tuple[Any, Any, Any]] = []

    class Noting(factory.provider):  # type: ignore[misc]
        def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
            compiled: ep.CompiledPartition = super().compile(partition)
            seen.append((self, partition, compiled))
            return compiled

    factory.provider = Noting
    return seen


def raises_or_is_wrong(factory: ep.EpFactory, text: str, *feeds: Any) -> bool:
    """Whether runs fail, or give other results than the CPU EP's."""
    try:
        return is_wrong(factory, text, *feeds)
    except onnxplug.errors.OnnxplugError:
        return True


@shows("floors-quotients-of-integers")
def _(factory: ep.EpFactory) -> bool:
    text = "g (int64[3] x, int64[3] z) => (int64[3] y) { y = Div (x, z) }"
    x, z = np.array([-7, 7, 6]), np.array([2, -2, 3])
    return is_wrong(factory, text, {"x": x, "z": z})


@shows("takes-0-for-an-attribute-that-is-not-set")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { y = LeakyRelu (x) }"
    return is_wrong(factory, text, {"x": X})


IMAGE = -np.arange(1, 61, dtype=F).reshape(1, 3, 5, 4)

POOL = """g (float[1,3,5,4] x) => (float[1,3,5,4] y)
    { y = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x) }"""


@shows("pads-the-maximum-with-zeros")
def _(factory: ep.EpFactory) -> bool:
    return is_wrong(factory, POOL, {"x": IMAGE})


@shows("gives-nodes-of-one-name-one-verdict")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { a = Sin (x) y = Relu (a) }"
    with session_of(factory, text) as session:
        # the host gives all nodes to others when compiling fails
        return all(node.ep != factory.name for node in session.explain().nodes)


@shows("takes-old-versions-for-new-ones")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[2,3,2] x) => (float[2,3,2] y) { y = Softmax (x) }"
    return is_wrong(factory, text, {"x": X.reshape(2, 3, 2)}, opset=11)


@shows("pools-channels-last-as-if-first")
def _(factory: ep.EpFactory) -> bool:
    return is_wrong(factory, POOL, {"x": IMAGE})


@shows("writes-no-inputs-that-are-left-out")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x, float m) => (float[4,3] y) { y = Clip (x, , m) }"
    seen = seen_by(factory)
    with session_of(factory, text):
        ((provider, partition, compiled),) = seen
        data = memoryview(provider.serialiser.serialise(compiled))
        restored = provider.serialiser.restore(partition, data)
        feed = [{"x": X, "m": F(2)}[name] for name in partition.inputs]
        (found,) = restored.run(feed, [None], None)
        (wanted,) = compiled.run(feed, [None], None)
    return differ(found, wanted)


@shows("finds-everything-compatible")
def _(factory: ep.EpFactory) -> bool:
    (device, *_rest) = factory.supported_devices(onnxplug.get_hardware_devices())
    assert factory.compatibility is not None
    assert isinstance(device, ep.EpDevice)
    word, _reason = factory.compatibility.check(device, "\ufffdOtherEP 7")
    return word is ep.Compatibility.OPTIMAL


@shows("keeps-programs-without-their-shapes")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[n,3] x) => (float[1,3] y) <int64[1] a = {0}>
        { y = ReduceMean (x, a) }"""
    return is_wrong(factory, text, {"x": X}, {"x": X[:2]})


@shows("rectifies-in-place")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { y = Relu (x) }"
    with session_of(factory, text) as session:
        x = X.copy()
        session.run(None, {"x": x})
    return differ(x, X)


# of the EP with a device


@shows("takes-powers-of-large-numbers")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { y = Softmax (x) }"
    return is_wrong(factory, text, {"x": 100 * X})


@shows("adds-int64-in-32-bits")
def _(factory: ep.EpFactory) -> bool:
    text = "g (int64[2] x) => (int64[2] y) { y = Mul (x, x) }"
    return is_wrong(factory, text, {"x": np.array([3, 100_000])})


@shows("pads-the-lower-same-as-the-upper")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[1,3,5,4] x, float[1,3,2,2] w) => (float[1,1,5,4] y)
        { y = Conv <auto_pad = "SAME_LOWER"> (x, w) }"""
    return is_wrong(factory, text, {"x": IMAGE, "w": X.reshape(1, 3, 2, 2)})


@shows("takes-sizes-that-are-not-known")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x, int64[2] s) => (float[n,m] y)
        { a = Neg (x) y = Reshape (a, s) }"""
    return raises_or_is_wrong(factory, text, {"x": X, "s": np.array([2, 6])})


@shows("drops-casts-there-and-back")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x) => (float[4,3] y)
        { a = Cast <to = 7> (x) y = Cast <to = 1> (a) }"""
    return is_wrong(factory, text, {"x": X + F(0.5)})


@shows("plans-by-the-shape-of-the-first-input")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[n,3] x, float[m,3] z) => (float[l,3] y)
        { y = Concat <axis = 0> (x, z) }"""
    feeds = {"x": X, "z": X}, {"x": X, "z": X[:2]}
    return raises_or_is_wrong(factory, text, *feeds)


@shows("keeps-weights-by-their-names")
def _(factory: Any) -> bool:
    text = "g (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> { y = Mul (x, w) }"
    other = text.replace("1, 2, 3", "4, 5, 6")
    with session_of(factory, text):
        # one that the same class makes is registered beside it
        again = type(factory)()
        again.name = f"Other{factory.name}"
        again.memory_spaces = None
        return is_wrong(again, other, {"x": X[0]})


@shows("returns-its-buffers-again")
def _(factory: ep.EpFactory) -> bool:
    made = made_by(factory)
    with session_of(factory, "g (float[4,3] x) => (float[4,3] y) { y = Neg (x) }"):
        device = made[0].context.device
        results = []
        for content in (X, X + 1):
            x = device.empty(X.shape, ep.DataType.FLOAT32)
            x.content[:] = content
            results += made[0].run([x], [None], None)
        return differ(results[0].content, -X)


@shows("copies-arrays-as-they-lie")
def _(factory: Any) -> bool:
    context = factory.make_context(ep.MemoryLocation(SPACE, 0))
    there = context.device.empty(X.T.shape, ep.DataType.FLOAT32)
    back = np.zeros(X.T.shape, F)
    context.transfer.copy([(X.T, there), (there, back)], None)
    return differ(back, X.T)


@shows("clamps-indices-out-of-range")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x, int64[2] i) => (float[2,3] y) { y = Gather (x, i) }"
    with session_of(factory, text) as session:
        try:
            session.run(None, {"x": X, "i": np.array([0, 4])})
        except onnxplug.errors.OnnxplugError:
            return False
    return True


@shows("tries-the-device-to-list-it")
def _(factory: ep.EpFactory) -> bool:
    made = contexts_of(factory)
    list(factory.supported_devices([]))
    return bool(made)
