"""The parser and the builder of TensorRT for RTX, which need no GPU, and are real.

They share their sources with TensorRT's, so what the EP believes of those is seen here.
Engines are run by the stand-in.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from plugins.cuda.tests import networks
from plugins.cuda.tests.standin import Machine

import onnxplug
from onnxplug import errors
from onnxplug_tensorrt import callbacks, parsing
from onnxplug_tensorrt.ranges import tensors_of

from . import bindings
from .conftest import EP
from .standin import LibCuda
from .standin.on_rtx import OnRtx

RNG = np.random.default_rng(5)
RANGES = {
    "trt_profile_min_shapes": "x:1x3",
    "trt_profile_opt_shapes": "x:2x3",
    "trt_profile_max_shapes": "x:4x3",
}


@pytest.fixture(scope="session")
def real() -> Any:
    return bindings.load_rtx()


@pytest.fixture
def tensorrt(machine: Machine, real: Any) -> OnRtx:
    return OnRtx(LibCuda(machine), real)


def check(
    session: onnxplug.InferenceSession, model: onnx.ModelProto, feed: Any
) -> None:
    found = session.run(None, {"x": feed})
    wanted = ReferenceEvaluator(model).run(None, {"x": feed})
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(
            one, other, 1e-4, 1e-5 * np.abs(other).max(initial=1)
        )


@pytest.mark.parametrize(
    ("name", "feeds"),
    [
        (
            "resnet",
            [RNG.standard_normal((n, 3, 32, 32)).astype(np.float32) for n in (1, 2)],
        ),
        (
            "bert",
            [RNG.integers(0, networks.WORDS, shape) for shape in ((1, 7), (2, 5))],
        ),
    ],
)
def test_engines_are_built_of_networks(
    make: Any, tensorrt: OnRtx, name: str, feeds: list[Any]
) -> None:
    """Weights are read where they are, and shapes grow."""
    model = getattr(networks, name)()
    session = make(model)
    for feed in feeds:
        check(session, model, feed)
    # of BERT's parts there are two: its parser does not take a Slice
    assert tensorrt.counts["builds"] == (2 if name == "resnet" else 4)
    assert tensorrt.counts["bytes"] > 2 * sum(
        onnx.numpy_helper.to_array(each).nbytes for each in model.graph.initializer
    )


@pytest.mark.parametrize("option", ["trt_fp16_enable", "trt_bf16_enable"])
def test_engines_of_fewer_bits_are_built(
    alone: Any, tensorrt: OnRtx, option: str
) -> None:
    pytest.importorskip("onnxplug_tensorrt.precision")
    model = networks.resnet()
    session = alone(model, **{option: 1})
    feed = {"x": RNG.standard_normal((1, 3, 32, 32)).astype(np.float32)}
    (found,) = session.run(None, feed)
    (wanted,) = ReferenceEvaluator(model).run(None, feed)
    assert np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()
    weights = tensorrt.networks[-1].model.graph.initializer
    assert {each.data_type for each in weights if len(each.dims) == 4} == {
        onnx.TensorProto.FLOAT16 if "fp16" in option else onnx.TensorProto.BFLOAT16
    }


def test_what_the_parser_does_not_take_goes_elsewhere(
    make: Any, parse: Any, tensorrt: OnRtx
) -> None:
    """With its reasons: of what it knows not to support, and of what it cannot read."""
    model = parse(
        "a = Exp(x) b = Sin(a) "
        's = ScatterElements<axis = 0, reduction = "mul">(b, i, u) '
        "c = Cos(s) d = Abs(c) q = Cast<to = 2>(d) r = Add(q, q) e = Cast<to = 1>(r) "
        "f = Neg(e) y = Exp(f)",
        weights="int64[1, 3] i = {0, 1, 0}, float[1, 3] u = {1, 2, 3}",
    )
    session = make(model)
    where = {node.op_type: node.ep for node in session.explain().nodes}
    assert {where["ScatterElements"], where["Add"]} == {"CPUExecutionProvider"}
    assert {where[name] for name in ("Sin", "Cos", "Abs", "Neg", "Exp")} == {EP}
    said = str(session.explain())
    assert "attribute: TensorRT: Unsupported reduction type" in said
    assert "TensorRT: Invalid Node" in said and "type is UInt8" in said
    check(session, model, np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3))


def test_weights_that_no_model_could_have_within(
    make: Any, parse: Any, monkeypatch: pytest.MonkeyPatch, tensorrt: OnRtx
) -> None:
    """As of 2 GB: it reads them where they are, and says which node it cannot read."""
    monkeypatch.setattr(parsing, "_MOST_INLINE", 0)
    model = parse(
        "m = MatMul(x, w) q = Cast<to = 2>(m) a = Add(q, q) c = Cast<to = 1>(a) "
        "d = Abs(c) e = Neg(d) y = Exp(e)",
        outputs="float[2, 400] y",
    )
    weights = RNG.standard_normal((3, 400)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    session = make(model)
    where = {node.op_type: node.ep for node in session.explain().nodes}
    assert where["MatMul"] == where["Neg"] == EP != where["Add"]
    check(session, model, np.ones((2, 3), np.float32))


def test_a_shape_from_outside(make: Any, parse: Any, tensorrt: OnRtx) -> None:
    model = parse("e = Exp(x) r = Reshape(e, s) y = Sin(r)",
        "float[2, 3] x, int64[2] s", "float[n, m] y",
    )  # fmt: skip
    with pytest.warns(errors.EpWarning, match="a shape is read from 's'"):
        session = make(model, trt_min_subgraph_size=2)
    feed = {"x": np.ones((2, 3), np.float32), "s": np.array([3, 2])}
    np.testing.assert_allclose(session.run(None, feed)[0], np.sin(np.e), 1e-5)
    values = {f"trt_profile_{side}_shapes": "s:3x2" for side in ("min", "opt", "max")}
    session = make(model, **values)
    assert EP in [node.ep for node in session.explain().nodes]


def test_ranges_and_flags(alone: Any, parse: Any, tensorrt: OnRtx) -> None:
    model = parse("y = Exp(x)", "float[n, 3] x", "float[n, 3] y")
    session = alone(
        model,
        trt_max_workspace_size=1 << 20,
        trt_builder_optimization_level=1,
        trt_auxiliary_streams=0,
        trt_sparsity_enable=1,
        trt_preview_features="ALIASED_PLUGIN_IO_10_03",
        trt_tactic_sources="-JIT_CONVOLUTIONS",
        **RANGES,
    )
    for batch in (1, 4):
        check(session, model, RNG.standard_normal((batch, 3)).astype(np.float32))
    assert tensorrt.counts["builds"] == 1


def test_what_is_not_built_is_told(make: Any, parse: Any, tensorrt: OnRtx) -> None:
    """By the session that it is of, though TensorRT has one log in a process."""
    make(parse("y = Exp(x)")).close()
    model = parse(
        "y = NonMaxSuppression(b, s, m, i, t)",
        "float[1, 6, 4] b, float[1, 1, 6] s", "int64[n, 3] y",
        weights="int64 m = {3}, float i = {0.5}, float t = {0}",
    )  # fmt: skip
    # which wants to try kernels
    with pytest.warns(errors.EpWarning, match="does not build NonMax.*Error"):
        make(model)


def test_a_build_is_given_up(
    factory: Any, monkeypatch: pytest.MonkeyPatch, tensorrt: OnRtx
) -> None:
    """As soon as the builder asks, of which the first time is when it begins."""
    options = onnxplug.SessionOptions()
    start = callbacks.Progress.phase_start

    def cancel(self: Any, *given: Any) -> None:
        start(self, *given)
        options.set_load_cancellation_flag(True)

    monkeypatch.setattr(callbacks.Progress, "phase_start", cancel)
    with pytest.raises(errors.LoadCancelled):
        onnxplug.InferenceSession(networks.mlp(), options, [(EP, mlp_ranges())])


def mlp_ranges() -> dict[str, str]:
    return {
        "trt_profile_min_shapes": "x:1x32",
        "trt_profile_opt_shapes": "x:2x32",
        "trt_profile_max_shapes": "x:4x32",
    }


def test_its_library_for_onnx_runtime_is_hosted(real: Any, tmp_path: Path) -> None:
    """Which finds no GPU, as functions of the driver fail."""
    pytest.importorskip("onnxplug_native")
    bindings.write_driver(tmp_path)
    script = Path(__file__).with_name("rtx_library.py")
    done = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["vendor"] == "NVIDIA"
    assert "could not resolve the GPU device properties" in found["reason"]


def test_tensors_of_a_network(real: Any) -> None:
    """By the names of the model's, for which there are ranges in TensorRT 10."""
    model = onnx.parser.parse_model("""
        < ir_version: 10, opset_import: ["" : 21] >
        agraph (float[2, 3] x) => (float[2, 3] y)
        < float[3, 3] w = {1,2,3,4,-9,6,7,8,5}, int64[1] axes = {0} >
        { m = MatMul(x, w) s = ReduceSum(m, axes) y = Sub(m, s) }
    """)
    builder = real.Builder(real.Logger(real.Logger.ERROR))
    network = builder.create_network(0)
    parser = real.OnnxParser(network, real.Logger(real.Logger.ERROR))
    assert parser.parse(model.SerializeToString())
    found = {tensor.name: each for tensor, each in tensors_of(real, network)}
    assert {"x", "m", "s", "y"} <= found.keys()
    elements = {name: each for name, each in found.items() if each is not None}
    assert elements.keys() == {"w_output"}
    assert np.ravel(elements["w_output"]).tolist() == [1, 2, 3, 4, -9, 6, 7, 8, 5]
