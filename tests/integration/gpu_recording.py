"""What GPUs would be given for models, without any: an EP whose device does nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

import onnxplug
from onnxplug import ep
from onnxplug.authoring.locks import new_rlock
from onnxplug_compiler.gpu.command import EngineCall, Launch
from onnxplug_compiler.gpu.execution.array import DeviceArray
from onnxplug_compiler.gpu.execution.backend import Backend
from onnxplug_compiler.gpu.execution.context import GpuContext
from onnxplug_compiler.gpu.execution.program import Weights
from onnxplug_compiler.gpu.execution.provider import GpuProvider
from onnxplug_compiler.gpu.execution.target import GpuTarget

NAME: Final = "RecordingExecutionProvider"
SPACE: Final = "recording"


class Memory:
    """Nothing."""

    serial = 0

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


class Device:
    """Takes everything."""

    array_type = DeviceArray
    alignment = 4
    numbers_alignment = 16
    largest = largest_buffer = 1 << 30
    generation = 1

    def __init__(self, target: GpuTarget) -> None:
        self.dialect = target.dialect
        self.most_buffers, self.most_groups = target.most_buffers, target.most_groups
        self.lock: threading.RLock = new_rlock()

    def ensure(self) -> None:
        pass

    def has(self, memory: Memory) -> bool:
        return True

    def memory(self, nbytes: int, stream: Any = None, mode: str = "") -> Memory:
        return Memory(nbytes)

    def upload(self, memory: Memory, array: np.ndarray[Any, Any], *rest: Any) -> None:
        pass

    def kernel(self, text: str, written: Sequence[bool], lanes: int) -> str:
        return text

    def numbers(self, content: bytes) -> bytes:
        return content

    def launch(self, *given: Any) -> None:
        pass

    def engine(self, call: Any) -> None:
        pass

    def engine_call(self, *given: Any) -> None:
        pass

    def close(self) -> None:
        pass


class Recording(ep.EpFactory):
    """The EP.

    Args:
        target: of the compiler.

    Attributes:
        commands: what was planned since it was last emptied.
    """

    spi_version = (0, 6)
    name = NAME

    def __init__(self, target: GpuTarget) -> None:
        self.commands: list[Launch | EngineCall] = []
        device, commands = Device(target), self.commands
        assemble = target.assemble

        def watched(given: Sequence[Any]) -> Any:
            commands.extend(given)
            return assemble(given)

        target.assemble = watched  # type: ignore[method-assign]
        self.backend = backend = Backend("none", "onnxplug-recording", "", target)

        class Spaces(ep.MemorySpaces):
            owned = frozenset({SPACE})

            def create_context(self, location: ep.MemoryLocation) -> GpuContext:
                return GpuContext(device, location, backend)  # type: ignore[arg-type]

        self.memory_spaces = Spaces()

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        for device in devices:
            if device.type is ep.DeviceType.CPU:
                yield ep.EpDevice(ep_name=NAME, device=device, by_name_only=True)

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        location = ep.MemoryLocation(SPACE, 0)
        context = session.context(location)
        assert isinstance(context, GpuContext)
        backend = self.backend
        shared = session.weights(location)
        weights = Weights(context.device, shared, backend.distribution)
        return GpuProvider(context, weights, backend)

    def record(self, model: bytes) -> list[Launch | EngineCall]:
        """What the device is given for *model*, all of which has to be compiled."""
        self.commands.clear()
        settings = onnxplug.SessionOptions()
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        session = onnxplug.InferenceSession(model, settings, providers=[NAME])
        tiers = {node.tier for node in session.explain().nodes}
        assert tiers == {"compiled"}, session.explain()
        return [*self.commands]
