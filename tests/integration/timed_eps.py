"""A library of EPs that take their time, fail, hang, die, and compute something else.

Each is registered in a process by the path of this file, where the variable
``TIMED_EPS`` names those that are wanted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug.authoring.kernels import KernelExecutionProvider

PAUSE = 0.03


def conv(x: Any, w: Any) -> Any:
    """A convolution by a kernel of one element."""
    return np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0], optimize=True)


KERNELS: dict[str, Callable[..., Any]] = {
    "Conv": conv,
    "MatMul": np.matmul,
    "Relu": lambda x: np.maximum(x, 0),
}


def paused(function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    """*function*, which takes *seconds* longer."""

    def run(*arrays: Any) -> Any:
        time.sleep(seconds)
        return function(*arrays)

    return run


def raising(*arrays: Any) -> Any:
    raise RuntimeError(f"it does not want {len(arrays)} arrays")


class Provider(KernelExecutionProvider):
    """Runs convolutions, products and Relu, as its name says."""

    def __init__(self, name: str) -> None:
        self.behaviour = name

    def find_kernel(self, graph: ep.Graph, node: ep.Node) -> Any:
        kernel = KERNELS.get(node.op_type)
        if kernel is None:
            return ep.Reason(ep.RefusalCode.OP, f"{node.op_type} is beyond it")
        match self.behaviour:
            case "Slow":
                return paused(kernel, PAUSE)
            case "SlowConv" if node.op_type == "Conv":
                return paused(kernel, PAUSE)
            case "SlowProduct" if node.op_type == "MatMul":
                return paused(kernel, PAUSE)
            case "Raising":
                return raising
            case "Hanging":
                return paused(kernel, 3600)
            case "Wrong":
                return lambda *arrays: kernel(*arrays) + 1
            case "Idle":
                return ep.Reason(ep.RefusalCode.OTHER, "it never takes anything")
        return kernel

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        if self.behaviour == "Dying":
            os._exit(7)
        return super().compile(partition)


class Factory(ep.EpFactory):
    """Of one behaviour."""

    spi_version = (0, 6)

    def __init__(self, behaviour: str) -> None:
        self.behaviour = behaviour
        self.name = f"{behaviour}ExecutionProvider"

    def supported_devices(self, devices: Any) -> Any:
        cpus = [device for device in devices if device.type == "cpu"]
        return [ep.EpDevice(ep_name=self.name, device=each) for each in cpus[:1]]

    def create(self, devices: Any, options: Any, session: Any) -> ep.ExecutionProvider:
        return Provider(self.behaviour)


@ep.hookimpl
def onnxplug_ep_factories(host: ep.Host) -> list[ep.EpFactory]:
    return [Factory(each) for each in os.environ["TIMED_EPS"].split(",")]
