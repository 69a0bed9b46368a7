"""What the options of a session say to its partitions."""

from __future__ import annotations

from collections.abc import Mapping

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.execution.backend import Backend
from onnxplug_compiler.gpu.execution.target import GpuTarget
from onnxplug_compiler.gpu.shapes import Shapes
from onnxplug_webgpu.backend import BACKEND


class Settings(Record):
    """What the options of a session say to its partitions.

    Attributes:
        backend: how partitions run.
        forced: names of nodes that are left to the next EP, and why.
        captures: whether bound runs are captured.
        caches: whether compiled partitions are kept on disk.
    """

    backend: Backend
    forced: Mapping[str, str]
    captures: bool
    caches: bool


def settings_of(options: Mapping[str, ep.OptionValue], shapes: Shapes) -> Settings:
    """The settings that options, all of :data:`~.options.OPTIONS`, stand for.

    Args:
        shapes: those that the option ``autotune`` stands for on the adapter.
    """
    target = GpuTarget(
        prefers_channels_last=options["preferredLayout"] == "NHWC", shapes=shapes
    )
    mode = str(options["storageBufferCacheMode"])
    forced = str(options["forceCpuNodeNames"]).splitlines()
    return Settings(
        BACKEND._replace(target=target, mode=mode),
        dict.fromkeys(forced, "option 'forceCpuNodeNames' names it"),
        bool(options["enableGraphCapture"]),
        bool(options["keepCompiled"]),
    )
