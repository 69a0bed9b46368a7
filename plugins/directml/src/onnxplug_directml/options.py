"""What users may set, by ONNX Runtime's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_directml.abi.directml import DML_EXECUTION_FLAGS

FILTERS: Final = ("gpu", "npu", "any")
PREFERENCES: Final = ("default", "high_performance", "minimum_power")

OPTIONS: Final[Mapping[str, ep.Option]] = {
    "device_id": ep.Option(
        default=0,
        minimum=-1,
        doc="which adapter: its place in DXGI's order, with `device_filter` npu among "
        "the NPUs; -1: the session's device",
        compiled_in=False,
    ),
    "device_filter": ep.Option(
        default="gpu",
        choices=FILTERS,
        doc="which kinds of adapters are looked at where `device_id` leaves it open",
        compiled_in=False,
    ),
    "performance_preference": ep.Option(
        default="default",
        choices=PREFERENCES,
        doc="which adapter, where several are left: the fastest, the one that takes "
        "the least power, or the first",
        compiled_in=False,
    ),
    "disable_metacommands": ep.Option(
        default=False,
        doc="operators are computed by DirectML's own shaders, and never by those that "
        "drivers have for them",
    ),
    "enable_graph_capture": ep.Option(
        default=False,
        doc="bound runs are captured once, and replayed from then on",
        compiled_in=False,
    ),
    "enable_graph_serialization": ep.Option(
        default=False,
        doc="the graph of each partition is written beside the model, or in the "
        "current directory, as `<model>.Partition_<n>.json` with its constants as "
        "`.npz`; nothing reads them",
        compiled_in=False,
    ),
    "enable_cpu_sync_spinning": ep.Option(
        default=False,
        doc="who waits for the adapter, in this session or another, asks it again and "
        "again instead of sleeping: results are there some microseconds sooner, and a "
        "processor is busy",
        compiled_in=False,
    ),
    "dll_path": ep.Option(
        default="",
        doc="a `DirectML.dll`, or the folder that it is in; without it one beside the "
        "program is taken, then the system's; one for all sessions of a process",
        compiled_in=False,
    ),
    "disable_graph_fusion": ep.Option(
        default=False,
        doc="for programs that set it for ONNX Runtime",
        ignored="each partition is one graph of DirectML, which fuses what it can",
    ),
    "disable_memory_arena": ep.Option(
        default=False,
        doc="for programs that set it for ONNX Runtime",
        ignored="sessions on an adapter share memory, and what is idle is given back",
    ),
}


class Settings(Record):
    """What the options of a session come to.

    Attributes:
        number: as ``device_id``.
        kinds: of adapters, by ``device_filter``.
        preference: as ``performance_preference``.
        flags: how graphs are compiled.
        captures, writes_graphs, spins: whether the session does.
        dll_path: empty for none.
    """

    number: int
    kinds: frozenset[ep.DeviceType]
    preference: str
    flags: DML_EXECUTION_FLAGS
    captures: bool
    writes_graphs: bool
    spins: bool
    dll_path: str


_KINDS: Final = {
    "gpu": frozenset({ep.DeviceType.GPU}),
    "npu": frozenset({ep.DeviceType.NPU}),
    "any": frozenset({ep.DeviceType.GPU, ep.DeviceType.NPU}),
}


def read_settings(options: Mapping[str, ep.OptionValue]) -> Settings:
    """What *options*, typed and validated, come to."""
    flags = DML_EXECUTION_FLAGS.NONE
    if options["disable_metacommands"]:
        flags |= DML_EXECUTION_FLAGS.DISABLE_META_COMMANDS
    return Settings(
        number=int(options["device_id"]),
        kinds=_KINDS[str(options["device_filter"])],
        preference=str(options["performance_preference"]),
        flags=flags,
        captures=bool(options["enable_graph_capture"]),
        writes_graphs=bool(options["enable_graph_serialization"]),
        spins=bool(options["enable_cpu_sync_spinning"]),
        dll_path=str(options["dll_path"]),
    )
