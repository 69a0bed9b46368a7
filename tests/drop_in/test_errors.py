"""What goes wrong is caught here by what catches it in programs for ONNX Runtime."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.capi import _pybind_state

import onnxplug_onnxruntime as ort
from onnxplug.errors import OnnxplugError, UnknownOperator

THEIRS = SimpleNamespace(module=onnxruntime, native=_pybind_state)
OURS = SimpleNamespace(module=ort, native=ort)
CPU = "CPUExecutionProvider"
X = np.float32([[1, 2]])


def text(node: str, imports: str = '"": 21') -> bytes:
    model = onnx.parser.parse_model(
        f"<ir_version: 10, opset_import: [{imports}]> "
        f"g (float[N, 2] X) => (float[N, M] Y) {{ {node} }}"
    )
    return model.SerializeToString()


def session(runtime: Any, node: str = "Y = Relu (X)", imports: str = '"": 21') -> Any:
    return runtime.module.InferenceSession(text(node, imports), providers=[CPU])


def run(runtime: Any, feed: Any, outputs: Any = None, **options: Any) -> None:
    chosen = runtime.module.RunOptions()
    for name, value in options.items():
        setattr(chosen, name, value)
    session(runtime).run(outputs, feed, chosen)


def open_model(runtime: Any, model: Any) -> None:
    runtime.module.InferenceSession(model, providers=[CPU])


def with_delegate(runtime: Any, delegate: Callable[..., Any]) -> None:
    options = runtime.module.SessionOptions()
    options.set_provider_selection_policy_delegate(delegate)
    runtime.module.InferenceSession(text("Y = Relu (X)"), options)


def compiled(runtime: Any, folder: Path) -> None:
    (folder / "there.onnx").touch()
    flags = runtime.module.OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS
    options = runtime.module.SessionOptions()
    compiler = runtime.module.ModelCompiler(options, text("Y = Relu (X)"), flags=flags)
    compiler.compile_to_file(str(folder / "there.onnx"))


def streamed(runtime: Any, write: Callable[[bytes], object]) -> None:
    options = runtime.module.SessionOptions()
    compiler = runtime.module.ModelCompiler(options, text("Y = Relu (X)"))
    compiler.compile_to_stream(write)


def bound_and_run(runtime: Any) -> None:
    made = session(runtime)
    made.run_with_iobinding(made.io_binding())


NOWHERE = {
    # where there is no such operator, the class there, its node, what is imported
    "this opset": ("InvalidGraph", "Y = Gelu (X)", '"": 17'),
    "a domain that is not imported": ("InvalidGraph", "Y = my.domain.NoSuchOp (X)"),
    "a domain that nobody has": (
        "Fail",
        "Y = my.domain.NoSuchOp (X)",
        '"": 21, "my.domain": 1',
    ),
    "ONNX Runtime's domain": (
        "Fail",
        "Y = com.microsoft.NoSuchOp (X)",
        '"": 21, "com.microsoft": 1',
    ),
    "a domain of ONNX's": (
        "InvalidGraph",
        "Y = ai.onnx.ml.NoSuchOp (X)",
        '"": 21, "ai.onnx.ml": 3',
    ),
}

CASES: dict[str, tuple[str, str | None, Callable[[Any, Path], Any]]] = {
    # what, its class there, a part of its text, how it comes about
    "no file": ("NoSuchFile", "nofile", lambda r, _: open_model(r, "nofile.onnx")),
    "no model": ("InvalidProtobuf", None, lambda r, _: open_model(r, b"\xff" * 9)),
    "no bytes": (
        "InvalidArgument",
        "No graph was found in the protobuf",
        lambda r, _: open_model(r, b""),
    ),
    "no operator": (
        "InvalidGraph",
        "NoSuchOp",
        lambda r, _: session(r, "Y = NoSuchOp (X)"),
    ),
    **{
        f"no operator in {where}": (
            kind,
            "Gelu|NoSuchOp",
            lambda r, _, model=model: session(r, *model),
        )
        for where, (kind, *model) in NOWHERE.items()
    },
    "no input": (
        "ValueError",
        r"Required inputs \(\['X'\]\) are missing from input feed",
        lambda r, _: run(r, {}),
    ),
    "one input more": (
        "InvalidArgument",
        "Invalid input name: Z",
        lambda r, _: run(r, {"X": X, "Z": X}),
    ),
    "no output": (
        "InvalidArgument",
        "Invalid output name: ?'?Z",
        lambda r, _: run(r, {"X": X}, ["Z"]),
    ),
    "rank": (
        "InvalidArgument",
        "Invalid rank for input: X",
        lambda r, _: run(r, {"X": X[0]}),
    ),
    "size": (
        "InvalidArgument",
        "Got invalid dimensions for input: X",
        lambda r, _: run(r, {"X": X.T}),
    ),
    "element type": (
        "InvalidArgument",
        r"Actual: \(tensor\(double\)\) , expected: \(tensor\(float\)\)",
        lambda r, _: run(r, {"X": np.float64(X)}),
    ),
    "terminated": (
        "Fail",
        "Exiting due to terminate flag being set to true",
        lambda r, _: run(r, {"X": X}, terminate=True),
    ),
    "no input to bind": (
        "RuntimeError",
        "Failed to find NodeArg with name: Q",
        lambda r, _: session(r).io_binding().bind_cpu_input("Q", X),
    ),
    "nothing bound": ("RuntimeError", None, lambda r, _: bound_and_run(r)),
    "a device without an EP": (
        "RuntimeError",
        None,
        lambda r, _: r.module.OrtValue.ortvalue_from_numpy(X, "dml", 0),
    ),
    "no library": (
        "Fail",
        "/nope/lib.so",
        lambda r, _: r.module.register_execution_provider_library("x", "/nope/lib.so"),
    ),
    "no such library": (
        "Fail",
        None,
        lambda r, _: r.module.unregister_execution_provider_library("nobody"),
    ),
    "a delegate that raises": (
        "Fail",
        "boom",
        lambda r, _: with_delegate(r, lambda *_: {}["boom"]),
    ),
    "a delegate without a choice": (
        "Fail",
        "did not select anything",
        lambda r, _: with_delegate(r, lambda *_: []),
    ),
    "a compiled model that exists": (
        "Fail",
        "exists already",
        lambda r, folder: compiled(r, folder),
    ),
    "a stream that raises": (
        "Fail",
        "boom",
        lambda r, _: streamed(r, lambda _: {}["boom"]),
    ),
    "no devices": (
        "RuntimeError",
        None,
        lambda r, _: r.native.get_model_compatibility_for_ep_devices([], "info"),
    ),
    "no information": (
        "TypeError",
        None,
        lambda r, _: r.native.get_model_compatibility_for_ep_devices(
            r.module.get_ep_devices()[:1], None
        ),
    ),
    "no model with information": (
        "RuntimeError",
        None,
        lambda r, _: r.native.get_compatibility_info_from_model_bytes(b"no model", "E"),
    ),
    "no bytes with information": (
        "RuntimeError",
        None,
        lambda r, _: r.native.get_compatibility_info_from_model_bytes(b"", "E"),
    ),
    "no EP of information": (
        "RuntimeError",
        None,
        lambda r, _: r.native.get_compatibility_info_from_model_bytes(
            text("Y = Relu (X)"), ""
        ),
    ),
    "no EP of a device": (
        "InvalidArgument",
        "No valid factory found for execution provider",
        lambda r, _: r.native.get_hardware_device_ep_incompatibility_details(
            "NoExecutionProvider", r.native.get_hardware_devices()[0]
        ),
    ),
    "no severity": (
        "RuntimeError",
        None,
        lambda r, _: r.module.set_default_logger_callback(print, 5),
    ),
    "no callback": (
        "RuntimeError",
        None,
        lambda r, _: r.module.set_default_logger_callback("print"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_caught_alike(case: str, tmp_path: Path) -> None:
    name, words, cause = CASES[case]
    for runtime in (THEIRS, OURS):
        kind = getattr(builtins, name, None) or getattr(runtime.native, name)
        with pytest.raises(kind, match=words) as caught:
            cause(runtime, tmp_path)
    assert isinstance(caught.value, OnnxplugError)


@pytest.mark.parametrize("case", [case for case in CASES if "no operator" in case])
def test_an_operator_that_nobody_has_is_each_of_its_errors(
    case: str, tmp_path: Path
) -> None:
    """In ONNX Runtime one of the first two, by what is looked for first."""
    with pytest.raises(UnknownOperator) as caught:
        CASES[case][2](OURS, tmp_path)
    for name in ("Fail", "InvalidGraph", "NotImplemented"):
        assert isinstance(caught.value, getattr(ort, name))


def test_every_error_is_caught_as_a_runtime_error() -> None:
    """As programs do, for which ONNX Runtime says little more."""
    assert issubclass(OnnxplugError, RuntimeError)


def test_what_drives_a_device_is_told() -> None:
    for runtime in (THEIRS, OURS):
        native = runtime.native
        (processor,) = (
            each for each in native.get_hardware_devices() if each.type.value == 0
        )
        assert native.get_hardware_device_ep_incompatibility_details(
            CPU, processor
        ) == {
            "reasons_bitmask": 0,
            "notes": None,
            "error_code": 0,
        }
        reasons = native.OrtDeviceEpIncompatibilityReason
        assert [int(each) for each in reasons.__members__.values()] == [
            *(0, 1, 2, 4),
            -(2**31),
        ]


@pytest.mark.parametrize("runtime", [THEIRS, OURS], ids=["theirs", "ours"])
def test_nodes_of_the_cpu_are_told_one_by_one(runtime: Any) -> None:
    options = runtime.module.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    model = text("[first] z = Add (X, X) [last] Y = MatMul (z, X)")
    made = runtime.module.InferenceSession(model, options, providers=[CPU])
    assigned = [
        (part.ep_name, [(node.domain, node.op_type, node.name)])
        for part in made.get_provider_graph_assignment_info()
        for node in part.get_nodes()
    ]
    parts = made.get_provider_graph_assignment_info()
    assert len(parts) == len(assigned) == 2
    assert sorted(assigned) == [
        (CPU, [("", "Add", "first")]),
        (CPU, [("", "MatMul", "last")]),
    ]
