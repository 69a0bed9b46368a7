"""Acme's EP: runs Relu, in a way that nobody mistakes for another EP's."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from onnxplug import ep
from onnxplug.authoring.kernels import KernelExecutionProvider


class AcmeExecutionProvider(KernelExecutionProvider):
    def __init__(self, floor):
        self.floor = floor

    def find_kernel(self, graph, node):
        if node.domain or node.op_type != "Relu":
            return ep.Reason(ep.RefusalCode.OP, f"{node.op_type}; Acme runs Relu only")
        dtype = graph.value(node.inputs[0]).dtype
        if dtype is not ep.DataType.FLOAT32:
            return ep.Reason(ep.RefusalCode.DTYPE, f"{dtype}; Acme takes float32")
        return self.relu

    def relu(self, x):
        import numpy as np

        return np.where(x > 0, x, np.float32(self.floor))  # 0 anywhere else


class AcmeVerification(ep.Verification):
    def probes(self, device):
        import numpy as np

        return [
            ep.Probe(
                family="relu",
                operators=frozenset({("", "Relu", ep.DataType.FLOAT32)}),
                model=(Path(__file__).parent / "relu.onnx").read_bytes(),
                # of negative numbers, Acme has an opinion of its own
                inputs={"x": np.array([0.5, 1, 2e9, np.inf], np.float32)},
                tolerance=(0, 0),
            )
        ]


class AcmeFactory(ep.EpFactory):
    spi_version = (0, 6)
    name = "AcmeExecutionProvider"
    vendor = "Acme"
    version = "1.2.3"
    verification = AcmeVerification()
    options = MappingProxyType(
        {"floor": ep.Option(default=0.5, doc="What negative numbers become.")}
    )

    def supported_devices(self, devices):
        return [
            ep.EpDevice(
                ep_name=self.name,
                device=device,
                ep_vendor=self.vendor,
                metadata={"version": self.version},
            )
            for device in devices
            if device.type is ep.DeviceType.CPU
        ]

    def create(self, devices, options, session):
        return AcmeExecutionProvider(options["floor"])


def acme_unless_unwanted(
    ep_devices: Sequence[ep.EpDevice], model_info: ep.ModelInfo
) -> Iterable[ep.EpDevice]:
    wanted = model_info.metadata.get("acme") != "off"
    acmes = [pair for pair in ep_devices if pair.ep_vendor == "Acme"]
    others = [pair for pair in ep_devices if pair not in acmes]
    return [*acmes, *others] if wanted else others


@ep.hookimpl
def onnxplug_ep_factories(host):
    return [AcmeFactory()]


@ep.hookimpl
def onnxplug_selection_policies() -> Mapping[str, ep.SelectionPolicy]:
    return {"acme_unless_unwanted": acme_unless_unwanted}
