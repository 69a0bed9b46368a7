"""A complete third-party EP: element-wise float32 on the host, with numpy.

This is the SPI at its smallest.  An accelerator differs in that it has memory of its
own and imports its libraries in ``create``: see :mod:`onnxplug_testing.simulated`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.kernels import KernelExecutionProvider

KERNELS: Final[Mapping[str, Callable[..., Any]]] = {
    "Add": np.add,
    "Mul": np.multiply,
    "Relu": lambda x: np.maximum(x, 0),
    "Sub": np.subtract,
}


class ToyExecutionProvider(KernelExecutionProvider):
    """Runs the operators of :data:`KERNELS` on float32."""

    def find_kernel(
        self, graph: ep.Graph, node: ep.Node
    ) -> Callable[..., Any] | ep.Reason:
        kernel = None if node.domain else KERNELS.get(node.op_type)
        if kernel is None:
            known = ", ".join(KERNELS)
            return ep.Reason(ep.RefusalCode.OP, f"{node.op_type}; runs {known}")
        if node.since_version < 7 and node.op_type != "Relu":
            detail = f"{node.op_type}-{node.since_version}; broadcasts since opset 7"
            return ep.Reason(ep.RefusalCode.OPSET, detail)
        for name in filter(None, node.inputs):
            dtype = graph.value(name).dtype
            if dtype is not ep.DataType.FLOAT32:
                detail = f"{name!r} is {dtype or 'of unknown type'}; takes float32"
                return ep.Reason(ep.RefusalCode.DTYPE, detail)
        # numpy makes scalars of arrays of rank 0; the host wants arrays
        return lambda *arrays: np.asarray(kernel(*arrays))


class ToyFactory(ep.EpFactory):
    """Offers the EP on every CPU."""

    spi_version = (1, 0)
    name = "ToyExecutionProvider"

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        cpus = (device for device in devices if device.type is ep.DeviceType.CPU)
        return [ep.EpDevice(ep_name=self.name, device=device) for device in cpus]

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        return ToyExecutionProvider()


@ep.hookimpl
def onnxplug_ep_factories(host: ep.Host) -> Iterable[ep.EpFactory]:
    """The library's one factory.  Its entry point is named ToyExecutionProvider."""
    return [ToyFactory()]
