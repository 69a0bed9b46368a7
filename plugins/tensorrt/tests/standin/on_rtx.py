"""The stand-in with a real parser and builder: those of TensorRT for RTX.

These need no GPU, and share their sources with TensorRT.  What runs the engines is the
stand-in.
"""

from __future__ import annotations

import json
from typing import Any

from .building import MAGIC, IHostMemory
from .libcuda import LibCuda
from .module import TensorRT
from .parsing import INetworkDefinition, with_weights

REAL = """
ILogger IProgressMonitor BuilderFlag HardwareCompatibilityLevel MemoryPoolType
PreviewFeature TacticSource NetworkDefinitionCreationFlag DeviceType ErrorCode
Refitter OnnxParserRefitter
"""
"""What is the real module's."""


class Network(INetworkDefinition):
    """A real network, and the model that it is of."""

    real: Any

    @property
    def num_inputs(self) -> int:
        return int(self.real.num_inputs)

    def get_input(self, index: int) -> Any:
        return self.real.get_input(index)


class Builder:
    """A real builder."""

    world: Any

    def __init__(self, logger: Any) -> None:
        self._real = self.world.real.Builder(logger)
        self._profiles: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_network(self, flags: int = 0) -> Network:
        network: Network = self.world.Network()
        network.real = self._real.create_network(flags)
        return network

    def create_builder_config(self) -> Any:
        config = self._real.create_builder_config()
        self.world.configs.append(config)
        return config

    def create_optimization_profile(self) -> Any:
        self._profiles.append(self._real.create_optimization_profile())
        return self._profiles[-1]

    def build_serialized_network(
        self, network: Network, config: Any
    ) -> IHostMemory | None:
        self.world.counts["builds"] += 1
        plan = self._real.build_serialized_network(network.real, config)
        if plan is None:
            return None
        self.world.counts["bytes"] += plan.nbytes
        model = with_weights(network)
        shapes = {
            value.name: [tuple(shape) for shape in profile.get_shape(value.name)]
            for profile in self._profiles
            for value in model.graph.input
            if profile.get_shape(value.name)
        }
        facts = {
            "version": self.world.__version__,
            "device": [self.world.cuda.name, *self.world.cuda.capability],
            "portable": False,
            "profile": shapes,
            "values": {},
            "stripped": False,
        }
        head = json.dumps(facts).encode()
        return IHostMemory(
            MAGIC + len(head).to_bytes(4, "little") + head + model.SerializeToString()
        )


class OnnxParser:
    """A real parser, which notes what it is given."""

    world: Any

    def __init__(self, network: Network, logger: Any) -> None:
        self._network = network
        self._real = self.world.real.OnnxParser(network.real, logger)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def load_model_proto(self, model: bytes) -> bool:
        import onnx

        self._network.model = onnx.load_from_string(model)
        return bool(self._real.load_model_proto(model))

    def load_initializer(self, name: str, data: int, size: int) -> bool:
        self._network.weights[name] = data, size
        return bool(self._real.load_initializer(name, data, size))


class OnRtx(TensorRT):
    """The module.

    Args:
        real: that of TensorRT for RTX.
    """

    def __init__(self, cuda: LibCuda, real: Any) -> None:
        super().__init__(cuda)
        self.real = real
        for name in REAL.split():
            setattr(self, name, getattr(real, name))
        for each in (Network, Builder, OnnxParser):
            setattr(self, each.__name__, type(each.__name__, (each,), {"world": self}))
