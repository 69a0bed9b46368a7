"""What a server costs: a model's session by itself, and behind HTTP and gRPC.

    python benchmarks/serving.py [OUTPUT.json]

needs onnxplug-serve, and Triton's clients.  The server is a process of its own, with
one thread for each run; clients are threads of this one: both share the processors.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import tritonclient.grpc
import tritonclient.http
from machine import describe_machine
from onnx import helper, numpy_helper

import onnxplug

SIDE: Final = 1024
LAYERS: Final = 4
CLIENTS: Final = 16
SECONDS: Final = 4.0
PORTS: Final = {"http": 18730, "grpc": 18731}
MODULES: Final = {"http": tritonclient.http, "grpc": tritonclient.grpc}

Ask = Callable[[], object]


def perceptron() -> onnx.ModelProto:
    """Layers of 1024 by 1024 float32, for any number of rows."""
    rng = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for layer in range(LAYERS):
        weight = rng.standard_normal((SIDE, SIDE)) / SIDE**0.5
        weights.append(numpy_helper.from_array(weight.astype(np.float32), f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{layer}"], [f"s{layer}"]))
        nodes.append(helper.make_node("Relu", [f"s{layer}"], [f"r{layer}"]))
        last = f"r{layer}"
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", SIDE])
        for name in ("x", last)
    ]
    graph = helper.make_graph(nodes, "perceptron", ends[:1], ends[1:], weights)
    opset = helper.make_opsetid("", 21)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10)


@contextmanager
def served(path: Path, *words: str) -> Iterator[None]:
    """A context in which the model is served as ``perceptron``."""
    command = [
        sys.executable, "-m", "onnxplug", "serve", f"perceptron={path}", *words,
        "--port", str(PORTS["http"]), "--grpc-port", str(PORTS["grpc"]),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        ready = f"http://127.0.0.1:{PORTS['http']}/v2/health/ready"
        for _ in range(600):
            try:
                with urllib.request.urlopen(ready):
                    break
            except OSError:
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


def client(protocol: str, x: Any) -> Ask:
    """Asks the server for one row, with a connection of its own."""
    module = MODULES[protocol]
    connection = module.InferenceServerClient(f"127.0.0.1:{PORTS[protocol]}")
    given = module.InferInput("x", list(x.shape), "FP32")
    given.set_data_from_numpy(x)
    return lambda: connection.infer("perceptron", [given]).as_numpy(f"r{LAYERS - 1}")


def latencies(ask: Ask) -> dict[str, float]:
    """Of one client that asks again and again: medians and tails, in ms."""
    for _ in range(50):
        ask()
    times = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        began = time.perf_counter()
        ask()
        times.append(1e3 * (time.perf_counter() - began))
    return {
        "p50_ms": statistics.median(times),
        "p99_ms": float(np.quantile(times, 0.99)),
        "requests": len(times),
    }


def throughput(make: Callable[[], Ask]) -> float:
    """Requests a second of 16 clients."""
    counts = [0] * CLIENTS
    begin = threading.Event()

    def work(number: int) -> None:
        ask = make()
        begin.wait()
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            ask()
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(n,)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    begin.set()
    for thread in threads:
        thread.join()
    return sum(counts) / SECONDS


def main() -> None:
    """Measure, and write what was found as JSON."""
    found: dict[str, Any] = {"machine": describe_machine()}
    x = np.random.default_rng(1).standard_normal((1, SIDE)).astype(np.float32)
    one = ["--threads", "1"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "perceptron.onnx")
        onnx.save(perceptron(), path)
        options = onnxplug.SessionOptions()
        options.intra_op_num_threads = 1
        with onnxplug.InferenceSession(str(path), options) as session:
            found["session"] = latencies(lambda: session.run(None, {"x": x}))
            rows = np.repeat(x, 16, 0)
            found["session, 16 rows"] = latencies(
                lambda: session.run(None, {"x": rows})
            )
        for batch in ("1", "16"):
            with served(path, *one, "--batch", batch):
                for protocol in PORTS:
                    key = f"{protocol}, --batch {batch}"
                    found[key] = latencies(client(protocol, x))
                    found[key]["requests_per_second_of_16"] = throughput(
                        lambda protocol=protocol: client(protocol, x)
                    )
    text = json.dumps(found, indent=1)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
