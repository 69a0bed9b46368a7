"""An accelerator without the hardware: memory, streams and an EP of its own.

It shows how an EP with a device is written, one file per role, and it makes the host's
mistakes visible on any machine:

- a forgotten copy is a ``TypeError``, since numpy cannot read a :class:`DeviceArray`;
- a forgotten synchronisation is a wrong number, since work on a stream is done as late
  as it may be, in an order that breaks every order not asked for, or in threads
  (``Knobs.schedule``), and memory is poisoned before it is written;
- an array dropped before its work is an error or poison, since its memory is poisoned
  in the order of its own stream and handed out again;
- work that overlaps, a stream in two threads at once, waiting while work is captured, a
  host array dropped before its copy is done, and releasing things in the wrong order or
  twice raise.

A factory owns the memory space ``Knobs.space`` and makes one :class:`SimulatedContext`
per device; with ``Knobs.shares`` it works in the space of another.

:class:`Knobs` says what it claims and where it fails::

    plugin = SimulatedPlugin(Knobs(ops=frozenset({"MatMul"}), device_count=2))
    onnxplug.register_ep_library("simulated", plugin)
"""

from onnxplug_testing.simulated.arrays import DeviceArray, OwnType
from onnxplug_testing.simulated.capture import SimulatedGraph
from onnxplug_testing.simulated.context import SimulatedContext
from onnxplug_testing.simulated.factory import SimulatedFactory, SimulatedPlugin
from onnxplug_testing.simulated.knobs import Knobs, SimulatedFailure, Stage
from onnxplug_testing.simulated.memory import PinnedAllocator, SimulatedAllocator
from onnxplug_testing.simulated.partition import SimulatedPartition
from onnxplug_testing.simulated.provider import SimulatedExecutionProvider
from onnxplug_testing.simulated.streams import SimulatedEvent, SimulatedStream
from onnxplug_testing.simulated.transfer import Copy, SimulatedDataTransfer

__all__ = [
    "Copy",
    "DeviceArray",
    "Knobs",
    "OwnType",
    "PinnedAllocator",
    "SimulatedAllocator",
    "SimulatedContext",
    "SimulatedDataTransfer",
    "SimulatedEvent",
    "SimulatedExecutionProvider",
    "SimulatedFactory",
    "SimulatedFailure",
    "SimulatedGraph",
    "SimulatedPartition",
    "SimulatedPlugin",
    "SimulatedStream",
    "Stage",
]
