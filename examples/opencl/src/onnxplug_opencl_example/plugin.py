"""What onnxplug asks for the EP.

It is imported whenever the EP may be used, so it imports OpenCL only in ``create`` and
later.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import ClassVar

from onnxplug import ep

from . import __version__


class OpenClFactory(ep.EpFactory):
    """Offers the EP on processors, where PoCL is; OpenCL counts its devices itself."""

    spi_version = (1, 0)
    name = "OpenClExecutionProvider"
    version = __version__
    tried_on: ClassVar[Mapping[ep.DeviceType, str]] = {
        ep.DeviceType.CPU: "PoCL 3.0 on an Intel Xeon"
    }
    options: ClassVar[Mapping[str, ep.Option]] = {
        "device": ep.Option(
            default=0,
            minimum=0,
            maximum=255,
            doc="Which of OpenCL's devices, counted over all platforms.",
        )
    }

    @cached_property
    def memory_spaces(self) -> ep.MemorySpaces:  # type: ignore[override]
        """The devices' memory."""
        from .context import OpenClSpaces

        return OpenClSpaces()

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        """The processor, if pyopencl is installed; no driver is loaded."""
        if importlib.util.find_spec("pyopencl") is None:
            return
        for device in devices:
            if device.type is ep.DeviceType.CPU:
                yield ep.EpDevice(
                    ep_name=self.name,
                    device=device,
                    metadata={"version": self.version},
                    # PoCL's memory is the host's in truth
                    costs=ep.Costs(seconds_per_copy=0, seconds_per_byte=0),
                    # programs that ask for any EP on the processor mean a faster one
                    by_name_only=True,
                )

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        """An EP for one session, on the context that all sessions share."""
        from .context import OpenClContext
        from .memory import SPACE
        from .provider import OpenClExecutionProvider

        ordinal = int(options["device"])
        # OpenCL must not be asked in the child of a fork, and the context knows
        context = session.context(ep.MemoryLocation(SPACE, ordinal))
        if not isinstance(context, OpenClContext):
            raise TypeError(f"{SPACE} is another EP's memory: {context!r}")
        context.check_process()
        return OpenClExecutionProvider(context)

    def engine_versions(self, device: ep.EpDevice) -> Mapping[str, str]:
        """Of the distributions that are installed, which need not be loaded."""
        versions = {}
        for name in ("pyopencl", "pocl-binary-distribution"):
            try:
                versions[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue  # another implementation of OpenCL is the system's
        return versions

    def diagnose(self) -> Iterable[ep.Finding]:
        """Whether pyopencl is installed."""
        if importlib.util.find_spec("pyopencl") is None:
            yield ep.Finding(
                level=ep.Level.ERROR,
                message="pyopencl is not installed",
                remedy="pip install 'pyopencl[pocl]'",
            )

    def operators(self) -> Iterable[ep.OperatorSupport]:
        """The operators, for ``onnxplug ops``."""
        from .operators import OPERATORS

        for op_type, operator in OPERATORS.items():
            first, last = operator.versions
            yield ep.OperatorSupport(
                op_type=op_type,
                since=first,
                until=last,
                types={"T": (ep.DataType.FLOAT32,)},
            )
