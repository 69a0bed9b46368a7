"""What OpenVINO compiled, written into models and restored from them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug.authoring.compilers import SameCompiler
from onnxplug.ep import Compatibility, EpDevice
from onnxplug.errors import ContextError, ContextMismatch, EpWarning
from onnxplug_openvino.factory import OpenVINOFactory

from .conftest import EP

NETWORK = """
    h = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, k)
    r = Relu (h)
    q = MatMul (s, s)
    d = Det (q)
    m = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
    f = Flatten (m)
    g = Gemm (f, w)
    t = Add (g, d)
    y = Softmax (t)
"""
"""Two partitions, as OpenVINO has no Det, which is the CPU EP's."""

CHANCE = np.random.default_rng(1)
KERNEL = CHANCE.standard_normal((16, 3, 3, 3), np.float32)
MATRIX = CHANCE.standard_normal((1024, 50), np.float32)
FEED = {
    "x": CHANCE.standard_normal((2, 3, 16, 16), np.float32),
    "s": CHANCE.standard_normal((3, 3), np.float32),
}


@pytest.fixture
def model(parse: Callable[..., onnx.ModelProto]) -> onnx.ModelProto:
    found = parse(NETWORK, "float[n, 3, 16, 16] x, float[3, 3] s", "float[n, 50] y")
    for name, array in (("k", KERNEL), ("w", MATRIX)):
        found.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return found


def compile_ahead(
    model: onnx.ModelProto, target: Path, embed: bool = False, **given: Any
) -> str:
    options = onnxplug.SessionOptions()
    options.add_provider(EP, given)
    onnxplug.ModelCompiler(
        options,
        model,
        embed,
        flags=onnxplug.OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED,
        graph_optimization_level=onnxplug.GraphOptimizationLevel.ORT_ENABLE_ALL,
    ).compile_to_file(target)
    return str(target)


def expected(model: onnx.ModelProto, feed: dict[str, Any] = FEED) -> Any:
    return ReferenceEvaluator(model).run(None, feed)[0]


def run(target: str, feed: dict[str, Any] = FEED, **given: Any) -> Any:
    with onnxplug.InferenceSession(target, None, [(EP, given)]) as session:
        return session.run(None, feed)[0]


@pytest.mark.parametrize("embed", [False, True])
def test_what_was_compiled_gives_the_same_results(
    model: onnx.ModelProto, tmp_path: Path, embed: bool
) -> None:
    target = compile_ahead(model, tmp_path / "c.onnx", embed)
    operators = [node.op_type for node in onnx.load(target).graph.node]
    assert sorted(operators) == ["Det", "EPContext", "EPContext"]
    for rows in (2, 5):  # sizes that are open stay open
        feed = FEED | {"x": np.resize(FEED["x"], (rows, 3, 16, 16))}
        np.testing.assert_allclose(
            run(target, feed), expected(model, feed), rtol=1e-4, atol=1e-6
        )


def test_another_process_restores_it_from_its_file(
    model: onnx.ModelProto, tmp_path: Path
) -> None:
    target = compile_ahead(model, tmp_path / "c.onnx")
    np.savez(tmp_path / "feed.npz", **FEED)
    program = f"""
import json, numpy as np, onnxplug
options = onnxplug.SessionOptions()
options.add_session_config_entry("session.disable_model_compile", "1")
session = onnxplug.InferenceSession({target!r}, options, [{EP!r}])
feed = dict(np.load({str(tmp_path / "feed.npz")!r}))
print(json.dumps(session.run(None, feed)[0].tolist()))
print(json.dumps([part.origin for part in session.explain().partitions]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    results, origins = map(json.loads, done.stdout.splitlines())
    np.testing.assert_allclose(results, expected(model), rtol=1e-4, atol=1e-6)
    assert sum(bool(origin) for origin in origins) == 2


def test_the_memory_of_the_file_is_used_and_kept(
    model: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is mapped, not read, if it is large."""
    from onnxplug_openvino import compiled

    target = compile_ahead(model, tmp_path / "c.onnx")
    blob = next(tmp_path.glob("*.bin"))
    content = blob.read_bytes()
    assert len(content) < 1 << 20
    seen: list[Any] = []
    really = compiled.Compiler.restore

    def restore(self: Any, blob: Any) -> Any:
        seen.append(blob)
        return really(self, blob)

    monkeypatch.setattr(compiled.Compiler, "restore", restore)
    with onnxplug.InferenceSession(target, None, [EP]) as session:
        assert all(not each.flags.owndata for each in seen)
        assert {id(each.base.obj) for each in seen} == {id(seen[0].base.obj)}
        seen.clear()
        blob.unlink()
        np.testing.assert_allclose(
            session.run(None, FEED)[0], expected(model), rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"precision": "ACCURACY"}, "option 'precision' as 'FP32', and here it is"),
        ({"load_config": '{"CPU": {"PERF_COUNT": "NO"}}'}, "option 'load_config' as"),
    ],
)
def test_other_options_are_refused(
    model: onnx.ModelProto, tmp_path: Path, given: dict[str, str], reason: str
) -> None:
    target = compile_ahead(model, tmp_path / "c.onnx")
    with pytest.raises(ContextMismatch, match=reason):
        run(target, **given)


def test_options_of_runs_may_be_others(model: onnx.ModelProto, tmp_path: Path) -> None:
    target = compile_ahead(model, tmp_path / "c.onnx", num_of_threads=2)
    found = run(target, num_of_threads=1, num_streams=2)
    np.testing.assert_allclose(found, expected(model), rtol=1e-4, atol=1e-6)


def test_another_version_of_the_engine_is_refused(
    model: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = compile_ahead(model, tmp_path / "c.onnx")
    info = onnxplug.get_compatibility_info_from_model(target, EP)
    assert info is not None
    devices = [each for each in onnxplug.get_ep_devices() if each.ep_name == EP][:1]
    ask = onnxplug.get_model_compatibility_for_ep_devices
    assert ask(devices, info).name == "EP_SUPPORTED_OPTIMAL"
    monkeypatch.setattr(
        OpenVINOFactory, "engine_versions", lambda self, device: {"openvino": "2099.1"}
    )
    assert ask(devices, info).name == "EP_UNSUPPORTED"
    with pytest.raises(ContextMismatch, match=r"engine openvino '.*', and here it is"):
        run(target)


def another_processor(info: str) -> str:
    facts = json.loads(info)
    facts["device"]["description"] = "Another Processor"
    return json.dumps(facts)


def cpu() -> EpDevice:
    (found,) = [
        each
        for each in onnxplug.get_ep_devices()
        if each.ep_name == EP and each.device.type == "cpu"
    ]
    return found


def test_what_another_processor_compiled_is_openvinos_to_judge() -> None:
    compatibility = OpenVINOFactory().compatibility
    info = another_processor(compatibility.compatibility_info(cpu()))
    verdict, reason = compatibility.check(cpu(), info)
    assert verdict is Compatibility.RECOMPILE
    assert "device description 'Another Processor'" in reason
    facts = json.loads(info)
    facts["machine"] = "pdp11"
    verdict, _ = compatibility.check(cpu(), json.dumps(facts))
    assert verdict is Compatibility.UNSUPPORTED


def test_what_another_processor_compiled_is_used_if_openvino_takes_it(
    model: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = SameCompiler.compatibility_info
    with monkeypatch.context() as patch:
        patch.setattr(
            SameCompiler,
            "compatibility_info",
            lambda self, device: another_processor(really(self, device)),
        )
        target = compile_ahead(model, tmp_path / "c.onnx")
    with pytest.warns(EpWarning, match="better compiled anew: .*'Another Processor'"):
        found = run(target)
    np.testing.assert_allclose(found, expected(model), rtol=1e-4, atol=1e-6)


def test_what_openvino_refuses_is_refused_in_its_words(
    model: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for instructions that this processor has not; the host's checksum is right."""
    from onnxplug_openvino import compiled

    really = compiled.OpenVINOPartition.exported

    def exported(self: Any) -> bytes:
        return bytes(really(self)).replace(b";isa=", b";isa=not ", 1)

    with monkeypatch.context() as patch:
        patch.setattr(compiled.OpenVINOPartition, "exported", exported)
        target = compile_ahead(model, tmp_path / "c.onnx")
    with pytest.raises(ContextMismatch, match="OpenVINO cannot import it: ") as got:
        run(target)
    assert "Exception from" not in str(got.value)


def test_a_damaged_file_never_reaches_openvino(
    model: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxplug_openvino import compiled

    target = compile_ahead(model, tmp_path / "c.onnx")
    blob = next(tmp_path.glob("*.bin"))
    content = bytearray(blob.read_bytes())
    content[-100] ^= 1
    content[4096 + 100] ^= 1
    blob.write_bytes(content)

    def restore(self: Any, blob: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(compiled.Compiler, "restore", restore)
    with pytest.raises(ContextError, match=r"damaged: the checksum of its .* bytes"):
        run(target)


def test_what_is_compiled_for_shapes_that_runs_bring_stays_nodes(
    model: onnx.ModelProto, tmp_path: Path
) -> None:
    with pytest.warns(EpWarning, match="compiled for the shapes that runs bring"):
        options = onnxplug.SessionOptions()
        options.add_session_config_entry("ep.context_enable", "1")
        options.add_session_config_entry("ep.context_file_path", str(tmp_path / "c"))
        given = {"disable_dynamic_shapes": True}
        onnxplug.InferenceSession(model, options, [(EP, given)]).close()
    assert not [*tmp_path.iterdir()]


def test_partitions_of_every_element_type_come_back(
    parse: Callable[..., onnx.ModelProto], tmp_path: Path
) -> None:
    """As inputs and outputs, of which OpenVINO may have made others of its own."""
    types = {
        "float": np.float32, "float16": np.float16, "int32": np.int32,
        "int64": np.int64, "uint8": np.uint8, "int8": np.int8, "bool": np.bool_,
    }  # fmt: skip
    for name, dtype in types.items():
        model = parse(
            "y = Transpose <perm = [1, 0]> (x)", f"{name}[2, n] x", f"{name}[n, 2] y"
        )
        target = tmp_path / f"{name}.onnx"
        feed = {"x": np.arange(6).reshape(2, 3).astype(dtype)}
        compile_ahead(model, target, int64_in_32_bits=True)
        found = run(str(target), feed, int64_in_32_bits=True)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, feed["x"].T)
