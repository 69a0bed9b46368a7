"""Runs models on a GPU of NVIDIA's, with inputs and outputs that stay there.

What is timed is a run to its end on the GPU.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

Feeds = Mapping[str, np.ndarray[Any, Any]]
Run = Callable[[], Sequence[Any]]

EP: Final = "CUDAExecutionProvider"

_SIDE: Final = 8192
"""Of the matrices by which the most that a card computes is measured."""

_COPIED: Final = 1 << 30
"""Bytes that are copied to find what its memory does."""

_ROUNDS: Final = 10


class OnHost:
    """A result that is copied to the host when it is asked for."""

    def __init__(self, read: Callable[[], np.ndarray[Any, Any]]) -> None:
        self._read = read

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self._read(), dtype)


def prepare(runtime: str, path: str, feeds: Feeds, options: Mapping[str, str]) -> Run:
    """What runs a model on the GPU.

    Args:
        runtime: ``onnxplug-cuda``, ``onnxruntime``, or ``torch``, the module itself.
        options: ``device``, which is ``cuda``; of torch ``compile``, the mode of
            ``torch.compile``; all others are the EP's.
    """
    given = {key: value for key, value in options.items() if key != "device"}
    if runtime == "torch":
        return _prepare_torch(Path(path), feeds, given.get("compile", ""))
    if runtime == "onnxruntime":
        return _prepare_onnxruntime(path, feeds, given)
    return _prepare_onnxplug(path, feeds, given)


def _prepare_onnxplug(path: str, feeds: Feeds, given: Mapping[str, str]) -> Run:
    import onnxplug

    # the CPU EP computes what constants determine, before the first run
    session = onnxplug.InferenceSession(
        path, providers=[(EP, given), "CPUExecutionProvider"]
    )
    elsewhere = {node.op_type for node in session.explain().nodes if node.ep != EP}
    if elsewhere:
        raise RuntimeError(f"{path} is not wholly on {EP}: {sorted(elsewhere)}")
    return bound(onnxplug.OrtValue, session, feeds, "cuda")


def bound(values: Any, session: Any, feeds: Feeds, device: str) -> Run:
    """What runs a session on values in a device's memory, inputs and outputs.

    Args:
        values: the class of values, onnxplug's.
        device: whose memory.
    """
    first = session.run(None, dict(feeds))
    names = [output.name for output in session.get_outputs()]
    binding = session.io_binding()
    for name, array in feeds.items():
        value = values.ortvalue_from_numpy(array, device, 0)
        binding.bind_ortvalue_input(name, value)
    outputs = [
        values.ortvalue_from_numpy(np.zeros_like(each), device, 0) for each in first
    ]
    for name, value in zip(names, outputs, strict=True):
        binding.bind_ortvalue_output(name, value)

    def run() -> Sequence[Any]:
        session.run_with_iobinding(binding)
        for value in outputs:
            value.wait()
        return [OnHost(value.numpy) for value in outputs]

    return run


def _prepare_onnxruntime(path: str, feeds: Feeds, given: Mapping[str, str]) -> Run:
    import onnxruntime

    onnxruntime.preload_dlls()
    session = onnxruntime.InferenceSession(path, providers=[(EP, dict(given))])
    if session.get_providers()[0] != EP:
        raise RuntimeError("this onnxruntime has no CUDA EP; pip install it with GPUs")
    binding = session.io_binding()
    values = onnxruntime.OrtValue
    kept = [values.ortvalue_from_numpy(array, "cuda", 0) for array in feeds.values()]
    for name, value in zip(feeds, kept, strict=True):
        binding.bind_ortvalue_input(name, value)
    first = session.run(None, dict(feeds))
    outputs = [values.ortvalue_from_numpy(array, "cuda", 0) for array in first]
    for output, value in zip(session.get_outputs(), outputs, strict=True):
        binding.bind_ortvalue_output(output.name, value)

    def run() -> Sequence[Any]:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        return [OnHost(value.numpy) for value in outputs]

    return run


def _prepare_torch(path: Path, feeds: Feeds, mode: str) -> Run:
    import torch
    from zoo import built
    from zoo.on_gpus import ON_GPUS

    # as the EP's and ONNX Runtime's defaults are: TF32, and the fastest convolutions
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    module: Any = built(ON_GPUS[path.stem])[0].to("cuda")
    if mode:
        module = torch.compile(module, mode=mode)
    given = [torch.from_numpy(each).to("cuda") for each in feeds.values()]

    def run() -> Sequence[Any]:
        with torch.inference_mode():
            found = module(*given)
        torch.cuda.synchronize()
        outputs = (found,) if isinstance(found, torch.Tensor) else found
        return [OnHost(lambda x=x: x.cpu().numpy()) for x in outputs]

    return run


def card() -> dict[str, Any]:
    """Which card it is, and the most that products and copies by PyTorch reach there,
    in 10⁹ operations and bytes a second."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    rates = {
        name: 2 * _SIDE**3 / _seconds(_product(torch, dtype)) / 1e9
        for name, dtype in (("fp32", torch.float32), ("fp16", torch.float16))
    }
    source = torch.empty(_COPIED, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    taken = _seconds(lambda: (target.copy_(source), torch.cuda.synchronize()))
    return {
        "card": torch.cuda.get_device_name(),
        "CUDA of PyTorch": torch.version.cuda,
        "peaks of the card": {
            **{f"GFLOP/s {name}": rate for name, rate in rates.items()},
            "GB/s": 2 * _COPIED / taken / 1e9,
        },
    }


def free() -> int:
    """Bytes of the card's memory that nobody has."""
    import torch

    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info()[0])


def _product(torch: Any, dtype: Any) -> Callable[[], Any]:
    a, b = (torch.randn(_SIDE, _SIDE, device="cuda").to(dtype) for _ in range(2))
    return lambda: (a @ b, torch.cuda.synchronize())


def _seconds(run: Callable[[], Any]) -> float:
    """The median of some runs, after one that nobody counts."""
    run()
    times = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times)
