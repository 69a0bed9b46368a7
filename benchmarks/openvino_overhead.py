"""What onnxplug adds to OpenVINO, and the same EP inside ONNX Runtime.

Four models with random weights: one ``Add``, an MLP, a ResNet-50 and a BERT-base
encoder.  Each runtime is a process of its own that holds the model compiled; they take
turns, a round each, and times are compared within a round.  ``openvino preset`` is
OpenVINO with its tensors set once, the least there is; ``openvino called`` is
``compiled_model([...])``.  Prints medians, and how they compare, and writes them as
JSON.

    python benchmarks/openvino_overhead.py [--output FILE] [--model NAME …]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from machine import describe_machine
from onnx import TensorProto, helper, numpy_helper

THREADS = 2
PRECISIONS = ("FP32", "BF16")
RUNTIMES = ("openvino preset", "openvino called", "onnxplug", "onnxruntime plugin")
ROUNDS = {
    "one node": (100, 250),
    "mlp": (50, 100),
    "resnet50": (20, 2),
    "bert": (12, 1),
}
"""Rounds, and runs in each."""


class Builder:
    """Gathers nodes and random weights."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._random = np.random.default_rng(0)

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """A node; the name of its output."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def weight(self, *shape: int, scale: float = 0.02, offset: float = 0.0) -> str:
        """A random weight."""
        values = self._random.standard_normal(shape, np.float32) * np.float32(scale)
        return self.constant(values + np.float32(offset))

    def constant(self, array: Any) -> str:
        """A constant."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def save(self, path: Path, kind: int, shape: Sequence[int], output: str) -> None:
        """The model, of one input ``x``, with its weights beside it."""
        x = helper.make_tensor_value_info("x", kind, shape)
        y = helper.make_empty_tensor_value_info(output)
        graph = helper.make_graph(self.nodes, "g", [x], [y], self.weights)
        imports = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=8)
        onnx.save(onnx.shape_inference.infer_shapes(model), path)


def build(name: str, path: Path) -> np.ndarray[Any, Any]:
    """Write model *name* to *path*; an input for it."""
    builder = Builder()
    random = np.random.default_rng(1)
    if name == "one node":
        builder.save(path, TensorProto.FLOAT, [1, 64], builder.add("Add", "x", "x"))
        return random.standard_normal((1, 64), np.float32)
    if name == "mlp":
        value = "x"
        for rows, columns in ((784, 512), (512, 512), (512, 10)):
            value = builder.add(
                "Gemm", value, builder.weight(rows, columns), builder.weight(columns)
            )
            value = builder.add("Relu", value) if columns != 10 else value
        builder.save(path, TensorProto.FLOAT, [1, 784], value)
        return random.standard_normal((1, 784), np.float32)
    if name == "resnet50":
        builder.save(path, TensorProto.FLOAT, [1, 3, 224, 224], _resnet50(builder))
        return random.standard_normal((1, 3, 224, 224), np.float32)
    builder.save(path, TensorProto.INT64, [1, 128], _bert(builder))
    return random.integers(0, 1000, (1, 128))


def _resnet50(builder: Builder) -> str:
    def convolve(value: str, out: int, into: int, size: int, stride: int) -> str:
        kernel = builder.weight(out, into, size, size, scale=(2 / into) ** 0.5 / size)
        value = builder.add(
            "Conv", value, kernel, strides=[stride] * 2, pads=[size // 2] * 4
        )
        parts = [builder.weight(out, offset=1), builder.weight(out)]
        parts += [builder.weight(out), builder.constant(np.ones(out, np.float32))]
        return builder.add("BatchNormalization", value, *parts)

    value = builder.add("Relu", convolve("x", 64, 3, 7, 2))
    value = builder.add(
        "MaxPool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4
    )
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        for block in range(blocks):
            stride = 2 if block == 0 and stage else 1
            short = value
            if block == 0:
                short = convolve(value, width * 4, channels, 1, stride)
            value = builder.add("Relu", convolve(value, width, channels, 1, 1))
            value = builder.add("Relu", convolve(value, width, width, 3, stride))
            value = convolve(value, width * 4, width, 1, 1)
            value = builder.add("Relu", builder.add("Add", value, short))
            channels = width * 4
    value = builder.add("Flatten", builder.add("GlobalAveragePool", value))
    return builder.add("Gemm", value, builder.weight(2048, 1000), builder.weight(1000))


def _bert(builder: Builder, layers: int = 12, width: int = 768) -> str:
    def dense(value: str, rows: int, columns: int) -> str:
        value = builder.add("MatMul", value, builder.weight(rows, columns))
        return builder.add("Add", value, builder.weight(columns))

    def heads(value: str, order: Sequence[int]) -> str:
        value = builder.add("Reshape", value, split)
        return builder.add("Transpose", value, perm=list(order))

    def normalise(value: str) -> str:
        return builder.add(
            "LayerNormalization", value, builder.weight(width, offset=1),
            builder.weight(width), axis=-1,
        )  # fmt: skip

    split = builder.constant(np.array([0, 0, 12, width // 12], np.int64))
    join = builder.constant(np.array([0, 0, width], np.int64))
    root = builder.constant(np.float32(np.sqrt(width // 12)))
    roots = [builder.constant(np.float32(value)) for value in (2**0.5, 1, 0.5)]
    value = builder.add("Gather", builder.weight(1000, width), "x")
    value = normalise(builder.add("Add", value, builder.weight(1, 128, width)))
    for _ in range(layers):
        q = heads(dense(value, width, width), (0, 2, 1, 3))
        k = heads(dense(value, width, width), (0, 2, 3, 1))
        v = heads(dense(value, width, width), (0, 2, 1, 3))
        scores = builder.add("Div", builder.add("MatMul", q, k), root)
        mixed = builder.add("MatMul", builder.add("Softmax", scores, axis=-1), v)
        mixed = builder.add("Transpose", mixed, perm=[0, 2, 1, 3])
        mixed = dense(builder.add("Reshape", mixed, join), width, width)
        value = normalise(builder.add("Add", value, mixed))
        hidden = dense(value, width, 4 * width)
        gate = builder.add("Erf", builder.add("Div", hidden, roots[0]))
        gate = builder.add("Add", gate, roots[1])
        hidden = builder.add("Mul", builder.add("Mul", hidden, gate), roots[2])
        value = normalise(builder.add("Add", value, dense(hidden, 4 * width, width)))
    return value


# the processes


def prepare(runtime: str, path: str, precision: str, x: Any) -> Callable[[], Any]:
    """Compile the model; a function that runs it once and gives its output."""
    hint = {"FP32": "f32", "BF16": "bf16"}[precision]
    if runtime == "onnxplug":
        import onnxplug

        options = onnxplug.SessionOptions()
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        given = {"precision": precision, "num_of_threads": THREADS}
        session = onnxplug.InferenceSession(
            path, options, providers=[("OpenVINOExecutionProvider", given)]
        )
        feed = {"x": x}
        return lambda: session.run(None, feed)[0]
    if runtime == "onnxruntime plugin":
        return _prepare_onnxruntime(path, hint, x)
    from onnxplug_openvino.engine import import_openvino  # which keeps telemetry off

    openvino = import_openvino()
    core = openvino.Core()
    able = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if precision not in able:
        raise RuntimeError(f"this processor has no {precision}; it has {able}")
    properties = {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": THREADS}
    compiled = core.compile_model(path, "CPU", properties)
    if runtime == "openvino called":
        return lambda: compiled([x])[0]
    request = compiled.create_infer_request()
    request.set_input_tensor(openvino.Tensor(x, shared_memory=True))
    y = np.empty(tuple(compiled.output(0).shape), np.float32)
    request.set_output_tensor(openvino.Tensor(y, shared_memory=True))

    def run() -> Any:
        request.infer(share_outputs=True)
        return y

    return run


def _prepare_onnxruntime(path: str, hint: str, x: Any) -> Callable[[], Any]:
    import onnxruntime
    import onnxruntime_ep_openvino as plugin

    onnxruntime.register_execution_provider_library(
        "openvino", plugin.get_library_path()
    )
    devices = [
        device
        for device in onnxruntime.get_ep_devices()
        if "openvino" in device.ep_name.lower()
        and device.device.type == onnxruntime.OrtHardwareDeviceType.CPU
    ][:1]
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    config = {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": str(THREADS)}
    given = {"load_config": json.dumps({"CPU": config})}
    options.add_provider_for_devices(devices, given)
    session = onnxruntime.InferenceSession(path, options)
    feed = {"x": x}
    return lambda: session.run(None, feed)[0]


def serve(runtime: str, path: str, precision: str, runs: int) -> None:
    """Compile, then time *runs* runs for every line that comes in."""
    x = np.load(f"{path}.npy")
    try:
        run = prepare(runtime, path, precision, x)
        result = run()
    except Exception as error:  # noqa: BLE001 (whatever a runtime raises)
        print(
            json.dumps({"error": f"{type(error).__name__}: {error}"[:300]}), flush=True
        )
        return
    np.save(f"{path}.{runtime}.npy", result)
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        started = time.perf_counter()
        for _ in range(runs):
            run()
        print(json.dumps((time.perf_counter() - started) / runs * 1e6), flush=True)


def measure(name: str, precision: str, folder: Path) -> dict[str, Any]:
    """Medians in microseconds, and how they compare to ``openvino preset``."""
    path = folder / f"{name.replace(' ', '_')}.onnx"
    np.save(f"{path}.npy", build(name, path))
    rounds, runs = ROUNDS[name]
    workers, errors = {}, {}
    for runtime in RUNTIMES:
        worker = subprocess.Popen(
            [
                sys.executable, __file__, "--serve",
                runtime, str(path), precision, str(runs),
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        hello = json.loads(_last_line(worker) or '{"error": "ended"}')
        if "error" in hello:
            errors[runtime] = hello["error"]
            if not workers:
                break  # without OpenVINO's own time there is nothing to compare with
        else:
            workers[runtime] = worker
    times: dict[str, list[float]] = {runtime: [] for runtime in workers}
    for _ in range(rounds):
        for runtime, worker in workers.items():
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
            times[runtime].append(json.loads(_last_line(worker)))
    for worker in workers.values():
        assert worker.stdin is not None
        worker.stdin.close()
        worker.wait()
    found: dict[str, Any] = {
        "medians (µs)": {r: round(statistics.median(t), 1) for r, t in times.items()},
        "minima (µs)": {r: round(min(t), 1) for r, t in times.items()},
    }
    base = times.get("openvino preset")
    if base:
        found["ratio to openvino preset"] = {
            r: round(statistics.median(a / b for a, b in zip(t, base, strict=True)), 3)
            for r, t in times.items()
        }
        found["added to openvino preset (µs)"] = {
            r: round(statistics.median(a - b for a, b in zip(t, base, strict=True)), 1)
            for r, t in times.items()
        }
        right = np.load(f"{path}.openvino preset.npy")
        found["largest difference"] = {
            r: float(np.abs(np.load(f"{path}.{r}.npy") - right).max()) for r in times
        }
    if errors:
        found["not measured"] = errors
    return found


def _last_line(worker: subprocess.Popen[str]) -> str:
    """The next line of JSON; libraries may print others."""
    assert worker.stdout is not None
    for line in worker.stdout:
        if line[:1] in "{0123456789":
            return line
    return ""


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("openvino_overhead.json"))
    parser.add_argument("--model", action="append", choices=list(ROUNDS))
    parser.add_argument("--serve", nargs=4, metavar="…", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        runtime, path, precision, runs = arguments.serve
        serve(runtime, path, precision, int(runs))
        return
    result: dict[str, Any] = {"machine": describe_machine(), "threads": THREADS}
    for name in arguments.model or ROUNDS:
        for precision in PRECISIONS:
            with tempfile.TemporaryDirectory() as folder:
                found = measure(name, precision, Path(folder))
            result[f"{name}, {precision}"] = found
            print(name, precision, json.dumps(found, ensure_ascii=False), flush=True)
    text = json.dumps(result, indent=2, ensure_ascii=False)
    arguments.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
