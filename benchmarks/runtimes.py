"""A process that holds one model in one runtime and times it when asked.

    python benchmarks/runtimes.py RUNTIME MODEL FEEDS RESULTS THREADS CORES OPTIONS
        CLOCK

FEEDS and RESULTS are ``.npz`` files; CORES, as in ``0,1``, are what the process may
use; OPTIONS is a JSON object of provider options for onnxplug; CLOCK is ``wall``, or
``cpu`` for what all threads of the process take together.  It answers in lines of
JSON: when the first run is done, with what the processor did since the process began;
then for each line of input, a number of seconds, the time of a run measured over about
as long; and at the end of input its peak memory.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Feeds: TypeAlias = Mapping[str, np.ndarray[Any, Any]]
Run: TypeAlias = Callable[[], Any]

_GROUP = 2e-3  # seconds; shorter runs are timed several at a time
_WARM_UP = 20e-3  # seconds, or one run, after the other processes had their turn


def prepare(runtime: str, path: str, feeds: Feeds, threads: int, options: Any) -> Run:
    """Load the model; a function that runs it and returns its outputs in order.

    Args:
        runtime: ``onnxplug``, its CPU EP; ``onnxplug-torch``, its EP on PyTorch;
            ``onnxplug-webgpu``, its EP on WebGPU, and ``tinygrad``, on WebGPU;
            ``onnxruntime``; ``openvino``; ``torch``, the module itself; ``tabular``,
            the library that fitted a pipeline; or ``lleaves`` or ``tl2cgen``.  With an
            option ``library``, ``onnxplug-native`` and ``onnxruntime`` have an EP of
            that library instead; with ``device``, these and ``torch`` run there.
    """
    if "device" in options:
        import on_cuda

        return on_cuda.prepare(runtime, path, feeds, options)
    if "library" in options:
        import native_eps

        kind = runtime.removesuffix("-native")
        return native_eps.prepare(kind, path, feeds, threads, options["library"])
    if runtime == "onnxplug":
        return _prepare_onnxplug(path, feeds, threads, options)
    if runtime == "onnxruntime":
        return _prepare_onnxruntime(path, feeds, threads)
    if runtime == "openvino":
        return _prepare_openvino(path, feeds, threads)
    if runtime == "onnxplug-webgpu":
        return _prepare_webgpu(path, feeds, options)
    if runtime == "tinygrad":
        return _prepare_tinygrad(path, feeds)
    if runtime in ("tabular", "lleaves", "tl2cgen"):
        from tabular.libraries import prepare_library

        return prepare_library(runtime, Path(path), feeds, threads)
    from zoo.running import prepare_module, prepare_session

    if runtime == "torch":
        return prepare_module(Path(path), feeds, threads, compiled="compile" in options)
    return prepare_session(Path(path), feeds, threads, options)


def _prepare_onnxplug(path: str, feeds: Feeds, threads: int, given: Any) -> Run:
    import onnxplug

    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = threads
    providers = [("CPUExecutionProvider", given)]
    session = onnxplug.InferenceSession(path, options, providers=providers)
    feeds = dict(feeds)
    return lambda: session.run(None, feeds)


def _prepare_onnxruntime(path: str, feeds: Feeds, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
    )
    feeds = dict(feeds)
    return lambda: session.run(None, feeds)


def _prepare_openvino(path: str, feeds: Feeds, threads: int) -> Run:
    # importing it would report so to its maker
    modules: dict[str, Any] = sys.modules
    modules.setdefault("openvino_telemetry", None)
    import openvino

    properties = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
    }
    compiled = openvino.Core().compile_model(path, "CPU", properties)
    request = compiled.create_infer_request()
    for port in compiled.inputs:
        array = feeds[port.any_name]
        tensor = openvino.Tensor(array, shared_memory=True)
        request.set_tensor(port, tensor)
    outputs = compiled.outputs

    def run() -> Any:
        found = request.infer(share_outputs=True)
        return [found[port] for port in outputs]

    return run


def _prepare_webgpu(path: str, feeds: Feeds, given: Any) -> Run:
    # ONNX Runtime's library has an EP of the same name, and may be installed, too
    os.environ["ONNXPLUG_PLUGINS"] = "cpu,webgpu@onnxplug-webgpu"
    import onnxplug

    options = onnxplug.SessionOptions()
    options.log_severity_level = 3  # what the adapter is, the benchmark says
    eps = [("WebGpuExecutionProvider", given), "CPUExecutionProvider"]
    session = onnxplug.InferenceSession(path, options, providers=eps)
    feeds = dict(feeds)
    return lambda: session.run(None, feeds)


def _prepare_tinygrad(path: str, feeds: Feeds) -> Run:
    os.environ["DEV"] = "WEBGPU"
    from tinygrad import Tensor, TinyJit
    from tinygrad.nn.onnx import OnnxRunner

    runner = OnnxRunner(path)
    gather = runner.onnx_ops["Gather"]

    def gather_nested(x: Any, indices: Any, axis: int = 0) -> Any:
        # of constant indices tinygrad 0.14 takes vectors only
        is_nested = isinstance(indices, list) and isinstance(indices[0], list)
        return gather(x, Tensor(indices) if is_nested else indices, axis)

    runner.onnx_ops = {**runner.onnx_ops, "Gather": gather_nested}

    @TinyJit
    def compute(**given: Any) -> list[Any]:
        return [each.realize() for each in runner(given).values()]

    def run() -> Any:
        given = {key: Tensor(x).clone().realize() for key, x in feeds.items()}
        return [each.numpy() for each in compute(**given)]

    for _ in range(2):  # the first time it runs, the second it captures
        run()
    return run


CLOCKS: Mapping[str, Callable[[], float]] = {
    "wall": time.perf_counter,
    "cpu": time.process_time,
}


def time_runs(run: Run, seconds: float, clock: str = "wall") -> float:
    """The median time of a run in seconds, measured over about *seconds*."""
    read = CLOCKS[clock]
    # what the others threw out of the caches
    until = time.perf_counter() + _WARM_UP
    runs = 0
    started = time.perf_counter()
    while not runs or time.perf_counter() < until:
        run()
        runs += 1
    group = max(1, round(_GROUP * runs / (time.perf_counter() - started)))
    times: list[float] = []
    until = time.perf_counter() + seconds
    while not times or time.perf_counter() < until:
        started = read()
        for _ in range(group):
            run()
        times.append((read() - started) / group)
    return statistics.median(times)


def _plain(result: Any) -> np.ndarray[Any, Any]:
    """A result as a file has it: texts of one length, and the values of maps."""
    if isinstance(result, list):
        return np.array([[*each.values()] for each in result])
    array = np.asarray(result)
    return array.astype(str) if array.dtype == object else array


def peak_memory() -> int:
    """Bytes; of this program alone, where ``getrusage`` counts its parent's too."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def _say(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def main(arguments: Sequence[str]) -> None:
    """Load, say so, and do what the lines of input ask for."""
    runtime, path, feeds_path, results_path, threads, cores, options, clock = arguments
    os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    with np.load(feeds_path) as stored:
        # files have no other texts
        feeds = {
            name: array.astype(object) if array.dtype.kind == "U" else array
            for name in stored.files
            for array in [stored[name]]
        }
    read = CLOCKS[clock]
    try:
        started = read()
        run = prepare(runtime, path, feeds, int(threads), json.loads(options))
        loaded = read()
        results = run()
        first = read() - loaded
    except Exception as error:  # noqa: BLE001 (whatever a runtime raises)
        _say(error=f"{type(error).__name__}: {error}"[:300])
        return
    _say(load=loaded - started, first_run=first, cpu=time.process_time())
    np.savez(results_path, *map(_plain, results))
    del results
    for line in sys.stdin:
        _say(seconds=time_runs(run, float(line), clock))
    _say(peak_memory=peak_memory())


if __name__ == "__main__":
    main(sys.argv[1:])
