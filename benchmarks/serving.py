"""What a server costs: a model's session by itself, and behind HTTP and gRPC; beside
MLServer and Ray Serve with ONNX Runtime, if there are environments with these.

    python benchmarks/serving.py [--mlserver PYTHON] [--ray PYTHON] [--json OUTPUT]

needs onnxplug-serve, Triton's client for gRPC, psutil, and ONNX Runtime.  Each server
is a process of its own, with one thread for each run, and all of them run at the same
time: they are asked in turn, by the same client.  Clients are threads of this process:
all share the processors.  Where the machine has other things to do, the processor time
of a request says more than the time that it took.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import onnx
import onnxruntime
import psutil
import tritonclient.grpc
from machine import describe_machine
from onnx import helper, numpy_helper

import onnxplug

SIDE: Final = 1024
LAYERS: Final = 4
OUTPUT: Final = f"r{LAYERS - 1}"
CLIENTS: Final = (16, 32)
ROUNDS: Final = 7
SECONDS: Final = 1.0
SERVERS: Final = Path(__file__).parent / "servers"

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


class Server(NamedTuple):
    """How a server is started, and what it speaks.

    Attributes:
        command: but for its ports.
        ways: of ``json``, ``binary`` and ``grpc``.
    """

    command: list[str]
    ways: tuple[str, ...]


def servers(
    path: Path, batch: int, mlserver: str | None, ray: str | None
) -> dict[str, Server]:
    """Those that there are, by name, with up to *batch* rows of requests in a run."""
    found = {
        "onnxplug": Server(
            [
                sys.executable, "-m", "onnxplug", "serve", f"perceptron={path}",
                "--threads", "1", "--batch", str(batch), "--port", "{http}",
                "--grpc-port", "{grpc}",
            ],
            ("json", "binary", "grpc"),
        )
    }  # fmt: skip
    if mlserver:
        # in one process, which is faster than its default of another for the model
        words = [str(path), str(batch), "0", "{http}", "{grpc}"]
        command = [mlserver, str(SERVERS / "on_mlserver.py"), *words]
        found["mlserver"] = Server(command, ("json", "grpc"))
    if ray:
        words = [str(path), str(batch), "{http}"]
        command = [ray, str(SERVERS / "on_ray.py"), *words]
        found["ray serve"] = Server(command, ("json", "binary"))
    return found


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(server: Server) -> Iterator[tuple[int, dict[str, int]]]:
    """A context in which the model is served as ``perceptron``; gives the process, and
    the ports."""
    ports = {"http": free_port(), "grpc": free_port()}
    command = [word.format(**ports) if "{" in word else word for word in server.command]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        ready = f"http://127.0.0.1:{ports['http']}/v2/models/perceptron/ready"
        for _ in range(2400):
            if process.poll() is not None:
                raise ChildProcessError(f"{command} ended")
            try:
                with urllib.request.urlopen(ready):
                    break
            except OSError:
                time.sleep(0.1)
        else:
            raise TimeoutError(f"{command} was not ready in 4 minutes")
        yield process.pid, ports
    finally:
        process.terminate()
        process.wait()


class HttpClient:
    """Asks one request over a connection of its own, as cheaply as Python can."""

    def __init__(self, port: int, x: Any, *, binary: bool) -> None:
        self._connection = socket.create_connection(("127.0.0.1", port))
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tensor: dict[str, Any] = {"name": "x", "datatype": "FP32"}
        tensor["shape"] = list(x.shape)
        asked: dict[str, Any] = {"inputs": [tensor]}
        lines = "Host: localhost\r\nContent-Type: application/json\r\n"
        raw = b""
        if binary:
            raw = x.tobytes()
            tensor["parameters"] = {"binary_data_size": len(raw)}
            asked["parameters"] = {"binary_data_output": True}
            text = json.dumps(asked).encode()
            lines += f"Inference-Header-Content-Length: {len(text)}\r\n"
        else:
            tensor["data"] = x.reshape(-1).tolist()
            text = json.dumps(asked).encode()
        self._request = (
            "POST /v2/models/perceptron/infer HTTP/1.1\r\n"
            f"{lines}Content-Length: {len(text) + len(raw)}\r\n\r\n"
        ).encode() + (text + raw)

    def __call__(self) -> bytes:
        self._connection.sendall(self._request)
        got = b""
        while b"\r\n\r\n" not in got:
            got += self._received()
        head, _, body = got.partition(b"\r\n\r\n")
        if head[9:12] != b"200":
            raise OSError(f"{head!r} {body[:200]!r}")
        _, _, rest = head.lower().partition(b"\r\ncontent-length:")
        size = int(rest.partition(b"\r\n")[0])
        while len(body) < size:
            body += self._received()
        return body

    def _received(self) -> bytes:
        part = self._connection.recv(1 << 16)
        if not part:
            raise OSError("the connection was closed")
        return part


def client(ports: Mapping[str, int], way: str, x: Any) -> Ask:
    """Asks the server for one row, with a connection of its own."""
    if way != "grpc":
        return HttpClient(ports["http"], x, binary=way == "binary")
    module = tritonclient.grpc
    connection = module.InferenceServerClient(f"127.0.0.1:{ports['grpc']}")
    given = module.InferInput("x", list(x.shape), "FP32")
    given.set_data_from_numpy(x)
    return lambda: connection.infer("perceptron", [given]).as_numpy(OUTPUT)


def spent(process: int) -> float:
    """Seconds of the processor that a process has used, and those that it started."""
    parent = psutil.Process(process)
    seconds = 0.0
    for each in (parent, *parent.children(recursive=True)):
        used = each.cpu_times()
        seconds += used.user + used.system
    return seconds


class Alone:
    """One client that asks again and again.

    Attributes:
        process: whose time of the processor a request is to take.
        times: by round, of each request in ms.
        used: seconds of the processor that all of them took.
    """

    def __init__(self, process: int) -> None:
        self.process = process
        self.times: list[list[float]] = []
        self.used = 0.0

    def ask(self, ask: Ask) -> None:
        """One round."""
        for _ in range(10):
            ask()
        before = spent(self.process)
        self.times.append(latencies(ask))
        self.used += spent(self.process) - before

    def told(self) -> dict[str, float]:
        """Medians over the rounds of the median and of the tail, in ms."""
        p99 = [float(np.quantile(each, 0.99)) for each in self.times]
        return {
            "p50_ms": round(statistics.median(map(statistics.median, self.times)), 3),
            "p99_ms": round(statistics.median(p99), 3),
            "least_ms": round(min(map(min, self.times)), 3),
            "processor_ms": round(1e3 * self.used / sum(map(len, self.times)), 3),
        }


def latencies(ask: Ask) -> list[float]:
    """Of one client, in ms."""
    times = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        began = time.perf_counter()
        ask()
        times.append(1e3 * (time.perf_counter() - began))
    return times


def throughput(clients: list[Ask]) -> float:
    """Requests a second of *clients* at the same time."""
    counts = [0] * len(clients)
    begin = threading.Event()

    def work(number: int) -> None:
        clients[number]()  # which connects some of them
        begin.wait()
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            clients[number]()
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(clients))]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    began = time.perf_counter()
    begin.set()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - began)


def sessions(path: Path, x: Any) -> dict[str, Ask]:
    """The same model without a server."""
    ours = onnxplug.SessionOptions()
    ours.intra_op_num_threads = 1
    session = onnxplug.InferenceSession(str(path), ours)
    theirs = onnxruntime.SessionOptions()
    theirs.intra_op_num_threads = 1
    other = onnxruntime.InferenceSession(
        str(path), theirs, providers=["CPUExecutionProvider"]
    )
    return {
        "onnxplug, no server": lambda: session.run(None, {"x": x}),
        "onnxruntime, no server": lambda: other.run(None, {"x": x}),
    }


def measured(path: Path, batch: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """All servers, asked in turn."""
    x = np.random.default_rng(1).standard_normal((1, SIDE)).astype(np.float32)
    alone: dict[str, Alone] = {}
    rates: dict[str, dict[int, list[float]]] = {}
    with ExitStack() as running:
        asked: dict[str, Callable[[], Ask]] = {}
        for name, server in servers(
            path, batch, arguments.mlserver, arguments.ray
        ).items():
            process, ports = running.enter_context(served(server))
            for way in server.ways:
                alone[f"{name}, {way}"] = Alone(process)
                asked[f"{name}, {way}"] = lambda p=ports, w=way: client(p, w, x)
        without = sessions(path, x)
        alone.update({name: Alone(os.getpid()) for name in without})
        for _ in range(arguments.rounds):
            for name, ask in without.items():
                alone[name].ask(ask)
            for name, make in asked.items():
                # anew, as servers close connections that others' turns leave idle
                alone[name].ask(make())
                for count in CLIENTS:
                    rate = throughput([make() for _ in range(count)])
                    rates.setdefault(name, {}).setdefault(count, []).append(rate)
    found: dict[str, Any] = {name: each.told() for name, each in alone.items()}
    for name, by_count in rates.items():
        found[name]["requests_per_second"] = {
            str(count): round(statistics.median(each))
            for count, each in by_count.items()
        }
    return found


def main() -> None:
    """Measure, and write what was found as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mlserver", metavar="PYTHON", help="that has MLServer")
    parser.add_argument("--ray", metavar="PYTHON", help="that has Ray Serve")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", metavar="OUTPUT", type=Path)
    arguments = parser.parse_args()
    found: dict[str, Any] = {"machine": describe_machine()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "perceptron.onnx")
        onnx.save(perceptron(), path)
        for batch in (1, 16):
            key = "joined by up to 16" if batch > 1 else "not joined"
            found[key] = measured(path, batch, arguments)
            text = json.dumps(found, indent=1)
            if arguments.json:
                arguments.json.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
