"""What mistakes in results do, and the EPs without mistakes do not."""

from __future__ import annotations

import contextlib
import gc
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

import onnxplug
from onnxplug import ep

from ..exhibit import F, X, contexts_of, is_wrong, model_of, session_of, shows
from ..exhibits_of_runs import compile_beside


@contextlib.contextmanager
def registered(factory: ep.EpFactory) -> Iterator[None]:
    """While the EP that *factory* makes can be asked for."""
    handle = f"planted {id(factory)}"
    onnxplug.register_ep_library(handle, factory)
    try:
        yield
    finally:
        gc.collect()
        onnxplug.unregister_ep_library(handle)


def fails(
    factory: ep.EpFactory, text: str, feed: Mapping[str, Any], **options: Any
) -> bool:
    """Whether no session is made, or its run raises."""
    try:
        with session_of(factory, text, **options) as session:
            session.run(None, dict(feed))
    except onnxplug.errors.OnnxplugError:
        return True
    return False


def runs_nothing(factory: ep.EpFactory, text: str) -> bool:
    """Whether all nodes are the CPU EP's, as where the EP failed."""
    with session_of(factory, text) as session:
        return all(node.ep != factory.name for node in session.explain().nodes)


def asked_of(factory: Any) -> list[tuple[Any, ep.Graph]]:
    """The EPs that are asked for claims from now on, each with the graph."""
    asked: list[tuple[Any, ep.Graph]] = []

    class Noting(factory.provider):  # type: ignore[misc]
        def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
            asked.append((self, graph))
            report: ep.CapabilityReport = super().get_capability(graph)
            return report

    factory.provider = Noting
    return asked


IMAGE: Final = np.arange(32, dtype=F).reshape(1, 2, 4, 4) - 40

# of the EP that compiles


@shows("padding-counts-unless-said-otherwise")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[1,2,4,4] x) => (float[1,2,5,5] y)
        { y = AveragePool <kernel_shape = [2,2], pads = [1,1,1,1]> (x) }"""
    return is_wrong(factory, text, {"x": IMAGE})


@shows("inputs-close-up-where-one-is-left-out")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x, float m) => (float[4,3] y) { y = Clip (x, "", m) }"""
    return is_wrong(factory, text, {"x": X, "m": F(2)})


@shows("takes-pools-that-round-up")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[1,2,4,4] x) => (float[1,2,2,2] y) {
        y = MaxPool <ceil_mode = 1, kernel_shape = [3,3], strides = [2,2]> (x) }"""
    return fails(factory, text, {"x": IMAGE})


@shows("judges-nodes-by-their-names")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x) => (float[4,3] y) { z = Relu (x) y = Erf (z) }"
    return runs_nothing(factory, text)


@shows("fuses-stacks-of-products-into-gemm")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[2,4,3] x, float[3,5] w, float[5] c) => (float[2,4,5] y)
        { p = MatMul (x, w) y = Add (p, c) }"""
    return runs_nothing(factory, text)


@shows("takes-all-images-with-channels-last-for-two-dimensional")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[1,2,16] x, float[5,2,3] w) => (float[1,5,14] y)
        { y = Conv (x, w) }"""
    feed = {"x": IMAGE.reshape(1, 2, 16), "w": np.ones((5, 2, 3), F)}
    return fails(factory, text, feed)


@shows("what-is-compiled-is-kept-without-shapes")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[n,3] x) => (float[1,3] y) <int64[1] a = {0}>
        { y = ReduceMean (x, a) }"""
    return is_wrong(factory, text, {"x": X}, {"x": X[:2]})


@shows("declines-a-type-when-a-run-waits-for-it")
def _(factory: ep.EpFactory) -> bool:
    text = "g (double[n,3] x) => (double[n,3] y) { y = Relu (x) }"
    return fails(factory, text, {"x": X.astype(np.float64)})


@shows("costs-that-are-not-known-are-minus-one")
def _(factory: ep.EpFactory) -> bool:
    asked = asked_of(factory)
    text = "g (float[n,3] x) => (float[n,3] y) { y = Relu (x) }"
    with session_of(factory, text):
        provider, graph = asked[0]
        seconds = provider.cost_model.estimate(graph, graph.nodes)
    return seconds is not None and seconds < 0


@shows("keeps-an-option-in-its-bytes-and-does-not-say")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[1,3] x) => (float[1,1] y) <int64[1] a = {1}>
        { y = ReduceSum (x, a) }"""
    with registered(factory), tempfile.TemporaryDirectory() as name:
        path = compile_beside(factory, text, Path(name), accumulate="double")
        providers = [(factory.name, {"accumulate": "single"})]
        try:
            session = onnxplug.InferenceSession(path, providers=providers)
        except onnxplug.errors.OnnxplugError:
            return False
        with session:
            (y,) = session.run(None, {"x": np.array([[2**24, 1, 1]], F)})
    return float(y.item()) == 2**24 + 2  # which only float64 finds


# of the EP with a device


@shows("maxima-of-padding-are-zero")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[1,2,4,4] x) => (float[1,2,4,4] y)
        { y = MaxPool <kernel_shape = [3,3], pads = [1,1,1,1]> (x) }"""
    return is_wrong(factory, text, {"x": IMAGE})


@shows("softmax-of-old-opsets-is-of-one-axis")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[2,2,3] x) => (float[2,2,3] y) { y = Softmax (x) }"
    return is_wrong(factory, text, {"x": X.reshape(2, 2, 3)}, opset=11)


@shows("computes-int64-in-32-bits")
def _(factory: ep.EpFactory) -> bool:
    text = "g (int64[2] x) => (int64[2] y) { y = Mul (x, x) }"
    return is_wrong(factory, text, {"x": np.array([3, 1 << 20], np.int64)})


@shows("takes-operators-of-other-domains")
def _(factory: ep.EpFactory) -> bool:
    asked = asked_of(factory)
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21, "com.example": 1]>
        g (float[4,3] x) => (float[4,3] y) { y = com.example.Relu (x) }"""
    )
    with registered(factory), contextlib.suppress(onnxplug.errors.OnnxplugError):
        onnxplug.InferenceSession(model, providers=[factory.name]).close()
    provider, graph = asked[0]
    return bool(provider.get_capability(graph).claims)


@shows("takes-shapes-that-are-fed")
def _(factory: ep.EpFactory) -> bool:
    text = "g (float[4,3] x, int64[2] s) => (float[a,b] y) { y = Reshape (x, s) }"
    return fails(factory, text, {"x": X, "s": np.array([6, 2], np.int64)})


@shows("runs-nodes-to-say-what-they-cost")
def _(factory: ep.EpFactory) -> bool:
    asked = asked_of(factory)
    text = "g (float[4,3] x) => (float[4,3] y) { y = Relu (x) }"
    with session_of(factory, text):
        provider, graph = asked[0]
        model = provider.cost_model
        if model is None:
            return False
        return len({model.estimate(graph, graph.nodes) for _ in range(20)}) > 1


@shows("sessions-share-weights-by-name")
def _(factory: ep.EpFactory) -> bool:
    text = """g (float[4,3] x) => (float[4,3] y) <float[3] w = {%s}>
        { y = Mul (x, w) }"""
    with session_of(factory, text % "1, 2, 3"):
        other = model_of(text % "4, 5, 6")
        with onnxplug.InferenceSession(other, providers=[factory.name]) as session:
            (y,) = session.run(None, {"x": X})
    return not np.array_equal(y, X * np.array([4, 5, 6], F))


@shows("compares-an-option-with-a-text")
def _(factory: ep.EpFactory) -> bool:
    asked = asked_of(factory)
    text = "g (float[4,3] x) => (float[4,3] y) { y = Relu (x) }"
    with session_of(factory, text, enable_graph_capture=True):
        provider, _ = asked[0]
        return provider.capture is None


@shows("makes-a-context-to-list-its-device")
def _(factory: ep.EpFactory) -> bool:
    made = contexts_of(factory)
    list(factory.supported_devices([]))
    return bool(made)
