"""Where ONNX Runtime surprises its users, onnxplug does not.

Each test is named for what was observed of ONNX Runtime 1.31.1, and shows what happens
here instead.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxplug
from onnxplug.errors import (
    EpWarning,
    InputTypeError,
    LibraryInUse,
    ModelWarning,
    OptionError,
    OutputMismatch,
    PluginNotFound,
    UnknownOutput,
)
from onnxplug_testing import ToyFactory

CPU = "CPUExecutionProvider"
TOY = "ToyExecutionProvider"
ABSENT = "VitisAIExecutionProvider"


def parse(graph: str) -> onnx.ModelProto:
    header = '<ir_version: 10, opset_import: ["": 21]> agraph '
    return onnx.parser.parse_model(header + graph)


RELU = parse("(float[2] x) => (float[2] y) { y = Relu (x) }")
IDENTITY = "({0}[N] x) => ({0}[N] y) {{ y = Identity (x) }}"


def run(model: onnx.ModelProto, **feed: Any) -> Any:
    (result,) = onnxplug.InferenceSession(model).run(None, feed)
    return result


@pytest.fixture
def toy() -> Iterator[str]:
    """The handle of a library that supplies the toy EP."""
    onnxplug.register_ep_library("toys", ToyFactory())
    yield "toys"
    if "toys" in [library.name for library in onnxplug.plugins.libraries()]:
        onnxplug.unregister_ep_library("toys")


def test_1_a_known_ep_that_is_absent_is_silently_the_cpu() -> None:
    with pytest.raises(PluginNotFound, match=ABSENT.removesuffix("Provider")):
        onnxplug.InferenceSession(RELU, providers=[ABSENT])
    with pytest.warns(EpWarning, match="CPUExecutionProvider is used instead"):
        onnxplug.InferenceSession(RELU, providers=[ABSENT, CPU])


def test_1_a_built_in_name_shadows_the_plugin_of_that_name() -> None:
    class Xnnpack(ToyFactory):
        name = "XnnpackExecutionProvider"

    onnxplug.register_ep_library("xnn", Xnnpack())
    try:
        with onnxplug.InferenceSession(RELU, providers=[Xnnpack.name]) as session:
            assert {node.ep for node in session.explain().nodes} == {Xnnpack.name}
    finally:
        onnxplug.unregister_ep_library("xnn")


@pytest.mark.parametrize(
    ("providers", "provider_options"),
    [(3, None), ([CPU], []), ([CPU], [3]), ([[CPU, {}]], [{}]), ([3], None)],
)
def test_2_wrong_arguments_for_providers_are_swallowed(
    providers: Any, provider_options: Any
) -> None:
    with pytest.raises(OptionError, match=r"provider|options of"):
        onnxplug.InferenceSession(RELU, None, providers, provider_options)


def test_3_a_banner_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(EpWarning):
        onnxplug.InferenceSession(RELU, providers=["Foo", CPU])
    with pytest.raises(PluginNotFound):
        onnxplug.InferenceSession(RELU, providers=["Foo"])
    assert capfd.readouterr() == ("", "")


def test_4_one_name_is_taken_letter_by_letter() -> None:
    assert onnxplug.InferenceSession(RELU, providers=CPU).get_providers() == [CPU]


def test_5_the_bytes_of_big_endian_arrays_are_misread() -> None:
    np.testing.assert_array_equal(run(RELU, x=np.array([-1, 2], ">f4")), [0, 2])


def test_6_arrays_of_bytes_are_read_beyond_their_items() -> None:
    items = np.array([b"abcd", b"efgh", b"ijkl"])
    result = run(parse(IDENTITY.format("string")), x=items)
    assert result.tolist() == ["abcd", "efgh", "ijkl"]


@pytest.mark.parametrize(
    "source", [np.ones(2, np.float64), np.ones(2, np.int8), np.ones((1, 2), np.float32)]
)
def test_7_update_inplace_reads_beyond_arrays_of_another_type(source: Any) -> None:
    value = onnxplug.OrtValue.ortvalue_from_numpy(np.zeros(2, np.float32))
    with pytest.raises(OutputMismatch, match="expected the same"):
        value.update_inplace(source)
    np.testing.assert_array_equal(value.numpy(), [0, 0])


def test_8_external_initializers_that_were_temporary_are_garbage() -> None:
    weights = np.zeros(60_000, np.float32)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [60_000])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    options = onnxplug.SessionOptions()
    make = onnxplug.OrtValue.ortvalue_from_numpy
    options.add_external_initializers(["w"], [make(np.full(60_000, 7, np.float32))])
    gc.collect()
    session = onnxplug.InferenceSession(helper.make_model(graph), options)
    del options
    others = [np.full(60_000, 9, np.float32) for _ in range(20)]
    (result,) = session.run(None, {"x": 0.0})
    assert set(result) == {7.0}, len(others)


def test_9_none_for_a_required_input_reaches_the_kernel() -> None:
    with pytest.raises(InputTypeError, match="input 'x' is None"):
        run(RELU, x=None)


def test_10_a_symbolic_dimension_may_have_two_sizes() -> None:
    model = parse("(float[batch] x, float[batch] z) => (float[batch] y) {y = Add(x,z)}")
    sums = run(model, x=np.ones(2, np.float32), z=np.ones(1, np.float32))
    np.testing.assert_array_equal(sums, [2, 2])


def test_11_an_output_of_another_shape_than_declared_is_only_logged() -> None:
    model = parse("(float[N] x) => (float[5] y) { y = Relu (x) }")
    with pytest.warns(ModelWarning, match=r"'y' has shape \[3\], .* declares \[5\]"):
        run(model, x=np.ones(3, np.float32))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4"])
def test_12_small_types_cannot_be_fed_or_come_back_as_bytes(name: str) -> None:
    array = np.array([0, 1, 2], getattr(ml_dtypes, name))
    result = run(parse(IDENTITY.format(name.replace("float8_", "float8"))), x=array)
    assert result.dtype == array.dtype
    np.testing.assert_array_equal(result, array)
    if name == "bfloat16":
        value = onnxplug.OrtValue.ortvalue_from_numpy(array)
        assert value.data_type() == "tensor(bfloat16)"
        np.testing.assert_array_equal(value.numpy(), array)


def test_13_a_failed_set_providers_bricks_the_session() -> None:
    session = onnxplug.InferenceSession(RELU)
    with pytest.raises(PluginNotFound):
        session.set_providers([ABSENT])
    assert session.get_providers() == [CPU]
    (result,) = session.run(None, {"x": np.array([-1, 2], np.float32)})
    np.testing.assert_array_equal(result, [0, 2])


def test_14_unregistering_a_library_in_use_ends_in_a_segmentation_fault(
    toy: str,
) -> None:
    session = onnxplug.InferenceSession(RELU, providers=[TOY])
    with pytest.raises(LibraryInUse, match="1 session on ToyExecutionProvider"):
        onnxplug.unregister_ep_library(toy)
    session.run(None, {"x": np.ones(2, np.float32)})
    pair = next(p for p in onnxplug.get_ep_devices() if p.ep_name == TOY)
    session.close()
    onnxplug.unregister_ep_library(toy)
    assert pair.device.type == "cpu"  # what was handed out is still good
    assert TOY not in onnxplug.get_available_providers()


def test_15_unknown_settings_arguments_and_outputs_are_ignored() -> None:
    options = onnxplug.SessionOptions()
    with pytest.raises(OptionError, match="did you mean 'session"):
        options.add_session_config_entry("session.disable_cpu_ep_fallbak", "1")
    with pytest.raises(OptionError, match="entry 'compiel'; did you mean 'compile'"):
        options.add_session_config_entry("ep.cpu.compiel", "1")
        onnxplug.InferenceSession(RELU, options)
    options = onnxplug.SessionOptions()
    with pytest.raises(OptionError, match="no run config entry 'gpu_graph'; did you"):
        of_run = onnxplug.RunOptions()
        of_run.add_run_config_entry("gpu_graph", "1")
        onnxplug.InferenceSession(RELU).run(None, {"x": np.ones(2, "f")}, of_run)
    with pytest.raises(AttributeError, match="graph_optimization_level"):
        options.graph_optimisation_level = 99  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="enable_falback"):
        onnxplug.InferenceSession(RELU, enable_falback=0)  # type: ignore[call-arg]
    with pytest.raises(OptionError, match="there is no pass 'folding'"):
        onnxplug.InferenceSession(RELU, disabled_optimizers=["folding"])
    with pytest.raises(OptionError, match="no free dimension 'Q'"):
        options.add_free_dimension_override_by_name("Q", 3)
        onnxplug.InferenceSession(RELU, options)
    with pytest.raises(UnknownOutput, match="Invalid output name: Q"):
        onnxplug.InferenceSession(RELU).io_binding().bind_output("Q")


def test_16_run_async_needs_two_threads() -> None:
    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxplug.InferenceSession(RELU, options)
    answers: list[tuple[list[Any], Any, str]] = []
    done = threading.Event()

    def tell(results: list[Any], user_data: Any, error: str) -> None:
        answers.append((results, user_data, error))
        done.set()

    session.run_async(None, {"x": np.array([-1, 2], np.float32)}, tell, "mine")
    assert done.wait(30)
    ((results, user_data, error),) = answers
    assert (results[0].tolist(), user_data, error) == ([0, 2], "mine", "")


@pytest.mark.parametrize("scalar", [-2.5, 3, np.float32(4)])
def test_17_scalars_are_rejected(scalar: Any) -> None:
    result = run(parse("(float x) => (float y) { y = Relu (x) }"), x=scalar)
    assert (result.shape, result) == ((), max(scalar, 0))


def test_18_a_scalar_cannot_be_told_from_an_unknown_rank() -> None:
    shapes = {"scalar": [], "unknown": None}
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(
        [helper.make_node("Add", ["scalar", "unknown"], ["y"])], "g", values, [y]
    )
    session = onnxplug.InferenceSession(helper.make_model(graph))
    known = {arg.name: (arg.shape, arg.rank_is_known) for arg in session.get_inputs()}
    assert known == {"scalar": ([], True), "unknown": ([], False)}


@pytest.mark.parametrize("opset", [27, 28])
def test_19_models_of_the_present_onnx_are_rejected(opset: int) -> None:
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(RELU.graph, opset_imports=imports, ir_version=14)
    np.testing.assert_array_equal(run(model, x=np.array([-1, 2], np.float32)), [0, 2])


def test_20_importing_it_prints_warnings_about_hardware() -> None:
    program = (
        "import onnxplug; onnxplug.get_hardware_devices(); onnxplug.get_ep_devices()"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")
