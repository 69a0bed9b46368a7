"""What the page on moving says of both runtimes is so, row by row.

Each row of its tables of differences is tried here by its first cell, or named with the
test that tries it.
"""

from __future__ import annotations

import json
import math
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

import onnxplug_onnxruntime as ort

PAGE: Final = Path(__file__).parents[2] / "docs/how-to/move-from-onnxruntime.md"

CPU: Final = "CPUExecutionProvider"
X: Final = np.float32([-1, 2])

TABLES: Final = (
    "What is stricter",
    "What is more lenient",
    "What is otherwise",
    "What does less",
)


def model(graph: str, imports: str = '"": 21') -> onnx.ModelProto:
    text = f"<ir_version: 10, opset_import: [{imports}]> g {graph}"
    return onnx.parser.parse_model(text)


CLIPPED: Final = """(float[1,1,1] x) => (float[1,1,1] y)
    <float[1,4,1] w = {10, 10, 10, 10}, float[1,4,1] r = {0, 0, 0, 0},
     float[1,8] b = {0, 0, 0, 0, 0, 0, 0, 0}, int32[1] lengths = {1},
     float[1,1,1] h = {0}, float[1,1,1] c = {3}>
    { a, y = LSTM <hidden_size = 1, clip = 0.4> (x, w, r, b, lengths, h, c) }"""
RELU: Final = model("(float[N] x) => (float[N] y) { y = Relu (x) }")
BYTES: Final = RELU.SerializeToString()


def session(
    runtime: Any, source: Any = BYTES, options: Any = None, **given: Any
) -> Any:
    if isinstance(source, str) and source.startswith("("):
        source = model(source).SerializeToString()
    return runtime.InferenceSession(source, options, **{"providers": [CPU]} | given)


def run(runtime: Any, graph: str, *outputs: str, **feed: Any) -> Any:
    return session(runtime, graph).run(list(outputs) or None, feed)[0]


def relu(runtime: Any, x: Any = X, **given: Any) -> Any:
    return session(runtime, **given).run(None, {"x": x})[0].tolist()


class Difference(NamedTuple):
    """What comes of the same lines there and here: a value, or a class of errors."""

    lines: Callable[[Any], Any]
    theirs: Any
    ours: Any


def with_options(**values: Any) -> Callable[[Any], Any]:
    def lines(runtime: Any) -> Any:
        options = runtime.SessionOptions()
        for name, value in values.items():
            setattr(options, name, value)
        return relu(runtime, options=options)

    return lines


def with_entry(key: str, value: Any) -> Callable[[Any], Any]:
    def lines(runtime: Any) -> Any:
        options = runtime.SessionOptions()
        options.add_session_config_entry(key, value)
        return relu(runtime, options=options)

    return lines


def with_dimension(name: str, size: int) -> Callable[[Any], Any]:
    def lines(runtime: Any) -> Any:
        options = runtime.SessionOptions()
        options.add_free_dimension_override_by_name(name, size)
        return session(runtime, BYTES, options).get_inputs()[0].shape

    return lines


def threads_of_the_model(runtime: Any) -> int:
    stated = onnx.ModelProto()
    stated.CopyFrom(RELU)
    config = json.dumps({"session_options": {"intra_op_num_threads": 3}})
    stated.metadata_props.add(key="ort_config", value=config)
    read = session(runtime, stated.SerializeToString(), read_config_from_model=1)
    threads: int = read.get_session_options().intra_op_num_threads
    return threads


def bound(runtime: Any, x: Any = X, output: str = "y", device: str = "cpu") -> Any:
    binding = session(runtime).io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output(output, device)
    return binding


def updated(runtime: Any) -> Any:
    value = runtime.OrtValue.ortvalue_from_numpy(np.zeros(2, np.float32))
    value.update_inplace(np.ones((2, 1), np.float32))
    return value.numpy().tolist()


def two_in_one(runtime: Any) -> Any:
    made = session(runtime, "(float[N] x) => (float[N] y, float[N] z) "
                   "{ y = Relu (x) z = Neg (x) }")  # fmt: skip
    binding = made.io_binding()
    binding.bind_cpu_input("x", X)
    value = runtime.OrtValue.ortvalue_from_numpy(np.zeros(2, np.float32))
    for name in "yz":
        binding.bind_ortvalue_output(name, value)
    made.run_with_iobinding(binding)
    return len(value.numpy())


def twice_bound(runtime: Any) -> list[float]:
    made = session(runtime)
    binding = made.io_binding()
    binding.bind_output("y")
    binding.bind_cpu_input("x", X)
    made.run_with_iobinding(binding)
    first = binding.get_outputs()[0].numpy()
    binding.bind_cpu_input("x", 3 * -X)
    made.run_with_iobinding(binding)
    values: list[float] = first.tolist()
    return values


def profiled(runtime: Any, graph: str) -> list[dict[str, Any]]:
    options = runtime.SessionOptions()
    options.enable_profiling = True
    made = session(runtime, graph, options)
    made.run(None, {"x": np.ones((2, 2), np.float32)})
    events: list[dict[str, Any]] = json.loads(Path(made.end_profiling()).read_text())
    return events


def kinds_of_events(runtime: Any) -> Any:
    events = profiled(runtime, "(float[N, M] x) => (float[N, M] y) { y = Relu (x) }")
    kinds = "".join(event["ph"] for event in events)
    whole = all(isinstance(event["dur"], int) for event in events if event["ph"] == "X")
    return re.sub(r"(.)\1+", r"\1", kinds), whole


def names_of_nodes(runtime: Any) -> list[str]:
    events = profiled(runtime, FUSED)
    return [
        event["name"].removesuffix("_kernel_time")
        for event in events
        if event["cat"] == "Node"
    ]


def prepared(graph: str, level: str) -> Callable[[Any], list[str]]:
    def lines(runtime: Any) -> list[str]:
        options = runtime.SessionOptions()
        options.graph_optimization_level = getattr(
            runtime.GraphOptimizationLevel, level
        )
        options.optimized_model_filepath = "prepared.onnx"
        options.log_severity_level, options.logid = 4, "differences"
        session(runtime, graph, options)
        return [node.op_type for node in onnx.load("prepared.onnx").graph.node]

    return lines


def from_one_thread(runtime: Any) -> Any:
    import threading

    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    done, told = threading.Event(), []

    def tell(results: list[Any], data: Any, error: str) -> None:
        told.append((results[0].tolist(), data, error))
        done.set()

    session(runtime, BYTES, options).run_async(["y"], {"x": X}, tell, 3)
    assert done.wait(30)
    return told


def copied(runtime: Any) -> Any:
    source, target = map(
        runtime.OrtValue.ortvalue_from_numpy, (X, np.zeros(2, np.float32))
    )
    runtime.copy_tensors([source], [target])
    return target.numpy().tolist()


def with_arrays_of_bytes(runtime: Any) -> Any:
    identity = "(string[N] x) => (string[N] y) { y = Identity (x) }"
    return run(runtime, identity, x=np.array([b"abcd", b"ef"])).tolist()


def with_bfloat16(runtime: Any) -> Any:
    identity = "(bfloat16[N] x) => (bfloat16[N] y) { y = Identity (x) }"
    return run(runtime, identity, x=X.astype(ml_dtypes.bfloat16)).dtype


def with_float8(runtime: Any) -> Any:
    identity = "(float8e4m3fn[N] x) => (float8e4m3fn[N] y) { y = Identity (x) }"
    bits = runtime.OrtValue.ortvalue_from_numpy_with_onnx_type(
        np.uint8([1, 2]), TensorProto.FLOAT8E4M3FN
    )
    return run(runtime, identity, x=bits).dtype


def compatibility(runtime: Any) -> int:
    pair = next(each for each in runtime.get_ep_devices() if each.ep_name == CPU)
    native = runtime.capi._pybind_state
    return int(native.get_model_compatibility_for_ep_devices([pair], "another's"))


def in_parallel(runtime: Any) -> Any:
    return with_options(
        execution_mode=runtime.ExecutionMode.ORT_PARALLEL,
        inter_op_num_threads=2,
        enable_cpu_mem_arena=False,
    )(runtime)


ORT_FORMAT: Final = b"\x20\0\0\0ORTM" + bytes(99)
THERE_AND_BACK: Final = (
    "(float[N] x) => (float[N] y) { a = Cast <to = 11> (x) b = Cast <to = 1> (a) "
    "y = Neg (b) }"
)
LIKE: Final = "(float[N] x) => (float[N] y) { a = CastLike (x, x) y = Neg (a) }"
FUSED: Final = (
    "(float[2, 2] x) => (float[2, 2] y) <float[2, 2] w = {1, 2, 3, 4}, "
    "float[2] b = {1, 2}> { a = MatMul (x, w) c = Add (a, b) y = Relu (c) }"
)
INNER: Final = "(float[N] x) => (float[N] y) { a = Neg (x) y = Relu (a) }"
WRONG_SHAPE: Final = "(float[N] x) => (float[5] y) { y = Relu (x) }"

TRIED: Final[dict[str, list[Difference]]] = {
    "wrong arguments for providers: a banner on stdout, and the CPU": [
        Difference(lambda r: relu(r, provider_options=[{}, {}]), [0, 2], ValueError)
    ],
    "options that the CPU EP does not have are ignored": [
        Difference(
            lambda r: relu(r, providers=[(CPU, {"compiel": "0"})]), [0, 2], ValueError
        )
    ],
    "`InferenceSession` ignores arguments that it does not know": [
        Difference(lambda r: relu(r, enable_falback=0), [0, 2], UserWarning)
    ],
    "a config entry may have any value": [
        Difference(
            with_entry("session.disable_cpu_ep_fallback", "yes"), [0, 2], ValueError
        )
    ],
    "unknown passes and dimensions are ignored": [
        Difference(lambda r: relu(r, disabled_optimizers=["No"]), [0, 2], ValueError),
        Difference(with_dimension("Q", 3), ["N"], ValueError),
    ],
    "a free dimension may be fixed to less than 1": [
        Difference(with_dimension("N", -3), [-3], ValueError)
    ],
    "`read_config_from_model=1` needs `ORT_LOAD_CONFIG_FROM_MODEL=1`, too": [
        Difference(threads_of_the_model, 0, 3)
    ],
    "`bind_output` of a name that does not exist fails in a run": [
        Difference(lambda r: bound(r, output="Q") is not None, True, ValueError)
    ],
    "`bind_output` to a device that is not there binds to the host's memory": [
        Difference(lambda r: bound(r, device="cuda") is not None, True, RuntimeError)
    ],
    "`update_inplace` compares the number of elements": [
        Difference(updated, [1, 1], ValueError)
    ],
    "`bind_cpu_input` copies arrays that are not contiguous": [
        Difference(
            lambda r: bound(r, x=np.zeros(4, np.float32)[::2]) is not None,
            True,
            ValueError,
        )
    ],
    "two outputs can be bound to one array": [Difference(two_in_one, 2, ValueError)],
    "masked arrays are fed with what lies below the mask": [
        Difference(lambda r: relu(r, np.ma.array(X, mask=[0, 1])), [0, 2], ValueError)
    ],
    "`None` for an input fails in the node that reads it": [
        Difference(
            lambda r: relu(r, None),
            onnxruntime.capi.onnxruntime_pybind11_state.Fail,
            TypeError,
        )
    ],
    "an output of another shape than the model declares is logged": [
        Difference(lambda r: run(r, WRONG_SHAPE, x=X).tolist(), [0, 2], UserWarning)
    ],
    "models are paths and `bytes`": [
        Difference(lambda r: relu(r, source=RELU), TypeError, [0, 2]),
        Difference(lambda r: relu(r, source=bytearray(BYTES)), TypeError, [0, 2]),
    ],
    '`providers="CPUExecutionProvider"` is taken letter by letter': [
        Difference(lambda r: relu(r, providers=CPU), UserWarning, [0, 2]),
        Difference(lambda r: relu(r, providers="cpu"), UserWarning, [0, 2]),
    ],
    "scalars of Python and numpy cannot be fed": [
        Difference(
            lambda r, number=number: run(
                r, "(float x) => (float y) { y = Relu (x) }", x=number
            ).tolist(),
            RuntimeError,
            2,
        )
        for number in (2, np.float32(2))
    ],
    "config entries are texts": [
        Difference(with_entry("session.disable_cpu_ep_fallback", 0), TypeError, [0, 2])
    ],
    "arrays of another byte order, and of bytes, are misread": [
        Difference(lambda r: relu(r, X.astype(">f4")) == [0, 2], False, True),
        Difference(with_arrays_of_bytes, ["abcdef", "ef"], ["abcd", "ef"]),
    ],
    "arrays of `ml_dtypes` cannot be fed": [
        Difference(with_bfloat16, RuntimeError, ml_dtypes.bfloat16),
        Difference(with_float8, np.uint8, ml_dtypes.float8_e4m3fn),
    ],
    "`get_provider_graph_assignment_info` needs a config entry": [
        Difference(
            lambda r: len(session(r).get_provider_graph_assignment_info()),
            onnxruntime.capi.onnxruntime_pybind11_state.Fail,
            1,
        )
    ],
    "`run_async` needs two threads": [
        Difference(
            from_one_thread,
            onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument,
            [([0, 2], 3, "")],
        )
    ],
    "`run` gives the model's outputs": [
        Difference(
            lambda r: run(r, INNER, "a", x=X).tolist(),
            onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument,
            [1, -2],
        ),
        Difference(
            lambda r: session(r).run("y", {"x": X})[0].tolist(), TypeError, [0, 2]
        ),
    ],
    "`copy_tensors` needs a device": [Difference(copied, RuntimeError, [-1, 2])],
    "sessions cannot be pickled": [
        Difference(lambda r: bool(pickle.dumps(session(r))), TypeError, True)
    ],
    "`add_provider` of an EP that is not there is an `InvalidArgument`": [
        Difference(
            lambda r: r.SessionOptions().add_provider("CUDAExecutionProvider", {}),
            onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument,
            LookupError,
        )
    ],
    "each line of a profile is an event of kind `X`, with whole numbers of µs": [
        Difference(kinds_of_events, ("X", True), ("XM", False))
    ],
    "nodes that run as one are in a profile by the name of the fused node": [
        Difference(
            names_of_nodes,
            ["fused /MatMulAddFusion"],
            ["MatMul + Add + Relu 2×2×2"],
        )
    ],
    "a `Cast` to a wider type and the `Cast` back are dropped, even with "
    "`ORT_DISABLE_ALL`": [
        Difference(prepared(THERE_AND_BACK, level), ["Neg"], ["Cast", "Cast", "Neg"])
        for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL")
    ],
    "a `CastLike` becomes a `Cast`, which stays": [
        Difference(prepared(LIKE, "ORT_ENABLE_ALL"), ["Cast", "Neg"], ["Neg"])
    ],
    "with `ORT_ENABLE_EXTENDED`, `optimized_model_filepath` is written with fused "
    "operators": [
        Difference(
            prepared(FUSED, "ORT_ENABLE_EXTENDED"),
            ["FusedGemm"],
            ["MatMul", "Add", "Relu"],
        )
    ],
    "`get_provider_options()` has no options of the CPU EP": [
        Difference(lambda r: bool(session(r).get_provider_options()[CPU]), False, True)
    ],
    "`get_available_providers()` has `AzureExecutionProvider`": [
        Difference(
            lambda r: "AzureExecutionProvider" in r.get_available_providers(),
            True,
            False,
        )
    ],
    "the version of a model that has none is 2⁶³ − 1": [
        Difference(lambda r: session(r).get_modelmeta().version, 2**63 - 1, 0)
    ],
    "`clip` of an `LSTM` leaves the cell as it is where the activation of the output "
    "takes it": [
        Difference(
            lambda r: run(r, CLIPPED, x=np.ones((1, 1, 1), "f")).round(4).item(),
            # the cell is 2.0234; the gate of the output is sigmoid(0.4) for both
            np.float32(math.tanh(2.0234) / (1 + math.exp(-0.4))).round(4).item(),
            np.float32(math.tanh(0.4) / (1 + math.exp(-0.4))).round(4).item(),
        )
    ],
    "another run with a binding overwrites the outputs that it gave before": [
        Difference(twice_bound, [3, 0], [0, 2])
    ],
    "`result.base`, the owner of a result's memory": [
        Difference(
            lambda r: session(r).run(None, {"x": X})[0].base is None, False, True
        )
    ],
    "enums are texts such as `ExecutionMode.ORT_PARALLEL`": [
        Difference(
            lambda r: str(r.ExecutionMode.ORT_PARALLEL),
            "ExecutionMode.ORT_PARALLEL",
            "1",
        )
    ],
    "of a model's compatibility its CPU EP says `EP_NOT_APPLICABLE`": [
        Difference(compatibility, 0, 3)
    ],
    "native libraries of custom operators": [
        Difference(
            lambda r: r.SessionOptions().register_custom_ops_library(
                onnxruntime.capi.onnxruntime_pybind11_state.__file__
            ),
            onnxruntime.capi.onnxruntime_pybind11_state.Fail,
            ImportError,
        )
    ],
    "models in ORT format": [
        Difference(
            lambda r: relu(r, source=ORT_FORMAT),
            onnxruntime.capi.onnxruntime_pybind11_state.Fail,
            ValueError,
        )
    ],
    "`inter_op_num_threads`, `ORT_PARALLEL`, memory arenas, allocators": [
        Difference(in_parallel, [0, 2], [0, 2])
    ],
    "`set_ep_dynamic_options`": [
        Difference(
            lambda r: session(r).set_ep_dynamic_options({"ep.dynamic.x": "1"}),
            None,
            None,
        )
    ],
    "tuning results": [Difference(lambda r: session(r).get_tuning_results(), [], [])],
    "`preload_dlls`": [Difference(lambda r: r.preload_dlls(), None, None)],
    "telemetry, `set_default_logger_verbosity`": [
        Difference(lambda r: r.enable_telemetry_events(), None, None)
    ],
}

ELSEWHERE: Final = {
    "an EP that is not there is left out, and the model runs on the CPU": (
        "test_leniency"
    ),
    "an EP that nobody knows: a banner on stdout, and the CPU; with "
    "`enable_fallback=0` an error": "test_leniency",
    "unknown config entries are ignored": "test_leniency",
    "options that have no effect are accepted": "test_leniency",
    "a run in which an EP fails is done again on the CPU": "test_options",
    "`unregister_execution_provider_library` of a library in use": (
        "quirks/test_onnxruntime_quirks"
    ),
    "a compiled model is judged by what its EP says of versions and devices": (
        "integration/test_ep_contexts"
    ),
    "after `set_global_thread_pool_sizes`, no session has threads of its own": (
        "test_process"
    ),
    "an operator that nobody has is a `Fail` or an `InvalidGraph`, by its domain": (
        "test_errors"
    ),
    "EPContext models that ONNX Runtime wrote, `ep.enable_weightless`": (
        "integration/test_ep_contexts"
    ),
    "sparse inputs and outputs": "types/test_sparse",
    "operators of the domain `com.microsoft`": "microsoft",
    "`OrtEpDevice.create_sync_stream`": "test_native",
}
"""Rows that are tried by other tests, and by which."""


def rows() -> Iterator[str]:
    """The first cells of the tables of differences."""
    text = PAGE.read_text("utf-8")
    for title in TABLES:
        _, _, after = text.partition(f"\n## {title}\n")
        table = after.partition("\n## ")[0]
        for line in table.splitlines():
            if line.startswith("| ") and not line.startswith(
                ("| ONNX Runtime", "| ---")
            ):
                yield line.split(" | ")[0].removeprefix("| ")


def test_every_row_of_the_page_is_tried() -> None:
    assert sorted(rows()) == sorted([*TRIED, *ELSEWHERE])
    root = Path(__file__).parent
    for name in ELSEWHERE.values():
        found = [base / name for base in (root, root.parent)]
        assert [
            each for each in found if each.is_dir() or each.with_suffix(".py").is_file()
        ]


@pytest.mark.parametrize("row", TRIED)
@pytest.mark.parametrize("runtime", [onnxruntime, ort], ids=["theirs", "ours"])
def test_it_is_so(
    row: str, runtime: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for difference in TRIED[row]:
        expected = difference.ours if runtime is ort else difference.theirs
        is_error = isinstance(expected, type) and issubclass(expected, Exception)
        if is_error and issubclass(expected, Warning):
            with pytest.warns(expected):
                difference.lines(runtime)
        elif is_error:
            with pytest.raises(expected):
                difference.lines(runtime)
        else:
            assert difference.lines(runtime) == expected
