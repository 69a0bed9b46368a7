"""Libraries of two vendors, which know nothing of onnxplug, in its sessions."""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxplug
from onnxplug import errors
from onnxplug_cli.main import main

from .conftest import GGML, NXRT, OPENVINO, close_to_reference
from .networks import bert, resnet50

FLOAT = TensorProto.FLOAT


def model_of(nodes, inputs, outputs, weights=()) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, k, s) for n, k, s in inputs],
        [helper.make_tensor_value_info(n, k, s) for n, k, s in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.checker.check_model(model)
    return model


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def mlp() -> onnx.ModelProto:
    return model_of(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("Gemm", ["b", "v"], ["y"], alpha=0.5),
        ],
        [("x", FLOAT, ["n", 8])],
        [("y", FLOAT, ["n", 4])],
        [("w", random(8, 16)), ("v", random(16, 4))],
    )


def convolutions() -> onnx.ModelProto:
    return model_of(
        [
            helper.make_node("Conv", ["x", "w"], ["a"], auto_pad="SAME_UPPER"),
            helper.make_node("LeakyRelu", ["a"], ["b"], alpha=0.1),
            helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2]),
            helper.make_node("GlobalAveragePool", ["c"], ["d"]),
            helper.make_node("Reshape", ["d", "s"], ["e"]),
            helper.make_node("Softmax", ["e"], ["y"]),
        ],
        [("x", FLOAT, [2, 3, 8, 8])],
        [("y", FLOAT, [2, 4])],
        [("w", random(4, 3, 3, 3)), ("s", np.array([2, 4], np.int64))],
    )


def branches() -> onnx.ModelProto:
    def body(operator: str, name: str) -> onnx.GraphProto:
        return helper.make_graph(
            [helper.make_node(operator, ["t", "k"], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, FLOAT, ["n", 3])],
        )

    return model_of(
        [
            helper.make_node("Add", ["x", "x"], ["t"]),
            helper.make_node(
                "If",
                ["c"],
                ["y"],
                then_branch=body("Mul", "p"),
                else_branch=body("Sub", "q"),
            ),
        ],
        [("x", FLOAT, ["n", 3]), ("c", TensorProto.BOOL, [])],
        [("y", FLOAT, ["n", 3])],
        [("k", random(3))],
    )


# ggml's library gets nothing of sizes that are not known
pytestmark = pytest.mark.filterwarnings("ignore:ggml was asked for")


def session_of(
    model: onnx.ModelProto, vendor: str, options: Mapping[str, str] = {}
) -> onnxplug.InferenceSession:
    data = model.SerializeToString()
    return onnxplug.InferenceSession(data, providers=[(vendor, options), "cpu"])


def test_nobody_needs_onnxruntime() -> None:
    with pytest.raises(ImportError):
        import onnxruntime  # noqa: F401


def test_a_partition_runs_with_batches_of_any_size(vendor) -> None:
    model = mlp()
    with session_of(model, vendor) as session:
        assert session.get_providers() == [vendor, "CPUExecutionProvider"]
        for size in (1, 4, 2, 7, 1):
            close_to_reference(model, session, {"x": random(size, 8)})


def test_convolutions() -> None:
    model = convolutions()
    with session_of(model, OPENVINO) as session:
        close_to_reference(model, session, {"x": random(2, 3, 8, 8)})


def test_bodies_of_control_flow(vendor) -> None:
    model = branches()
    with session_of(model, vendor) as session:
        for condition in (True, False):
            feeds = {"x": random(2, 3), "c": np.array(condition)}
            close_to_reference(model, session, feeds)


def test_resnet50_with_pictures_of_any_size() -> None:
    """By OpenVINO's; the other takes nothing of it, in ONNX Runtime neither."""
    model = resnet50()
    with session_of(model, OPENVINO) as session:
        assert {node.ep for node in session.explain().nodes} == {OPENVINO}
        for number, size in ((1, 32), (2, 64), (1, 32)):
            feeds = {"x": random(number, 3, size, size)}
            close_to_reference(model, session, feeds, 1e-3)


@pytest.mark.parametrize("vendor", [OPENVINO, NXRT])
def test_bert_with_texts_of_any_length(vendor) -> None:
    """By these whole, but for the lookup of tokens, of which OpenVINO's takes any: that
    is its own where users vouch for them."""
    model = bert()
    vouched = {"onnxplug.indices_in_range": "1"} if vendor == OPENVINO else {}
    with (
        session_of(model, vendor) as session,
        session_of(model, vendor, vouched) as whole,
    ):
        left = {n.op_type for n in session.explain().nodes if n.ep != vendor}
        assert left == ({"Gather"} if vendor == OPENVINO else set())
        assert {node.ep for node in whole.explain().nodes} == {vendor}
        for number, length in ((1, 7), (2, 19), (1, 7)):
            tokens = np.random.default_rng(length).integers(0, 1000, (number, length))
            for each in (session, whole):
                close_to_reference(model, each, {"x": tokens}, 1e-3)


@pytest.mark.parametrize(("fits", "right"), [("0", True), ("1", False)])
def test_int64_that_may_not_fit_in_32_bits(fits, right) -> None:
    """It is not OpenVINO's, unless it is said to fit."""
    kind = TensorProto.INT64
    model = model_of(
        [
            helper.make_node("Add", ["x", "x"], ["y"]),
            helper.make_node("Relu", ["a"], ["b"]),
        ],
        [("x", kind, [2]), ("a", FLOAT, [1])],
        [("y", kind, [2]), ("b", FLOAT, [1])],
    )
    providers = [(OPENVINO, {"onnxplug.int64_in_32_bits": fits}), "cpu"]
    data = model.SerializeToString()
    with onnxplug.InferenceSession(data, providers=providers) as session:
        (found,) = session.run(["y"], {"x": np.array([1, 2**40]), "a": random(1)})
    assert (found.tolist() == [2, 2**41]) is right


def test_eight_threads(vendor) -> None:
    model = mlp()
    wrong: list[int] = []
    with session_of(model, vendor) as session:
        feeds = [{"x": random(size, 8)} for size in range(1, 9)]
        expected = [session.run(None, each)[0] for each in feeds]

        def run(place: int) -> None:
            for _ in range(50):
                (found,) = session.run(None, feeds[place])
                if not np.allclose(found, expected[place], rtol=1e-5, atol=1e-5):
                    wrong.append(place)

        threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_a_model_with_weights_in_a_file(vendor, tmp_path) -> None:
    model = mlp()
    path = tmp_path / "mlp.onnx"
    onnx.save_model(
        model,
        path,
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        size_threshold=0,
    )
    with onnxplug.InferenceSession(path, providers=[vendor, "cpu"]) as session:
        close_to_reference(mlp(), session, {"x": random(3, 8)})


# OpenVINO's wheel


def test_the_wheel_is_found_by_itself(capsys) -> None:
    assert main(["eps"]) == 0
    assert "onnxruntime-ep-openvino" in capsys.readouterr().out
    (pair,) = [d for d in onnxplug.get_ep_devices() if d.ep_name == OPENVINO]
    assert pair.ep_vendor == "Intel"
    assert pair.metadata["ov_device"] == "CPU"


def test_a_library_gets_nothing_that_it_computes_with_less_digits() -> None:
    """ggml's multiplies in float16 where weights are constants, unless it has the
    options with which it was measured."""
    model = mlp()
    feeds = {"x": random(3, 8)}
    with session_of(model, GGML) as session:
        close_to_reference(model, session, feeds, 1e-5)
    data = model.SerializeToString()
    for options, is_near in (({}, True), ({"weights": "f16"}, False)):
        providers = [(GGML, {"onnxplug.trust_library": "1", **options})]
        with onnxplug.InferenceSession(data, providers=providers) as session:
            assert {node.ep for node in session.explain().nodes} == {GGML}
            if is_near:
                close_to_reference(model, session, feeds, 1e-5)
                continue
            with pytest.raises(AssertionError):
                close_to_reference(model, session, feeds, 1e-5)


def test_it_is_chosen_by_device_and_by_policy() -> None:
    data = mlp().SerializeToString()
    pairs = [d for d in onnxplug.get_ep_devices() if d.ep_name == OPENVINO]
    options = onnxplug.SessionOptions()
    options.add_provider_for_devices(pairs, {"num_of_threads": "1"})
    with onnxplug.InferenceSession(data, options) as session:
        assert session.get_providers()[0] == OPENVINO
        assert session.get_provider_options()[OPENVINO]["num_of_threads"] == "1"
    options = onnxplug.SessionOptions()
    options.set_provider_selection_policy(
        onnxplug.OrtExecutionProviderDevicePolicy.PREFER_CPU
    )
    with onnxplug.InferenceSession(data, options) as session:
        assert session.get_providers()[0] == OPENVINO


def test_an_option_that_the_library_refuses_is_an_error() -> None:
    providers = [(OPENVINO, {"load_config": "no JSON"})]
    with pytest.raises(errors.OnnxplugError, match=r"CreateEp of .* JSON"):
        onnxplug.InferenceSession(mlp().SerializeToString(), providers=providers)


def test_what_is_compiled_is_written_and_read(tmp_path) -> None:
    model = mlp()
    path, compiled = tmp_path / "mlp.onnx", tmp_path / "compiled.onnx"
    onnx.save_model(model, path)
    options = onnxplug.SessionOptions()
    options.add_provider(OPENVINO)
    onnxplug.ModelCompiler(options, path).compile_to_file(compiled)
    assert [n.op_type for n in onnx.load(compiled).graph.node] == ["EPContext"]
    with onnxplug.InferenceSession(compiled, providers=[OPENVINO]) as session:
        close_to_reference(model, session, {"x": random(3, 8)})


# a kernel registry


def test_a_library_is_unloaded_and_loaded_again() -> None:
    """That of ggml, whose EP is called what it is registered as."""
    found = importlib.metadata.files("onnxruntime-ggml") or ()
    (path,) = [each for each in found if each.name == "libonnxruntime_ggml.so"]
    model = mlp()
    for _ in range(3):
        onnxplug.register_ep_library("again", path.locate())
        with session_of(model, "again") as session:
            # by that name nothing was measured of it: its products are of float16
            close_to_reference(model, session, {"x": random(3, 8)}, 1e-2)
        onnxplug.unregister_ep_library("again")
        assert "again" not in onnxplug.get_available_providers()
