"""Which devices the torch EP drives, and what may be missing for it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from onnxplug import ep
from onnxplug_torch import __version__
from onnxplug_torch.devices import SPACES, Place, facts, match, obstacle, parse
from onnxplug_torch.installation import (
    INSTALL,
    NOT_INSTALLED,
    OLDEST,
    Build,
    find_build,
    import_torch,
)
from onnxplug_torch.options import OPTIONS, Settings, read_settings

if TYPE_CHECKING:
    from onnxplug_torch.context import TorchContext


class TorchSpaces(ep.MemorySpaces):
    """Those of torch's devices, to spare."""

    spare = SPACES

    def create_context(self, location: ep.MemoryLocation) -> TorchContext:
        """The memory and streams of one of torch's devices.

        Raises:
            LookupError: this torch does not drive it.
            RuntimeError: torch is missing, or too old.
        """
        build = _usable_build()
        place = Place(location.space, location.ordinal)
        torch = import_torch()
        if lacking := obstacle(torch, build, place):
            raise LookupError(lacking)
        from onnxplug_torch.context import TorchContext

        return TorchContext(torch, place)


class TorchVerification(ep.Verification):
    """Has devices checked that are not the makers'."""

    def probes(self, device: ep.EpDevice) -> Iterable[ep.Probe]:
        """One for each family of operators; none for processors, as tests are."""
        if device.device.type is ep.DeviceType.CPU:
            return []
        from onnxplug_torch.probes import probes

        return probes()


class TorchFactory(ep.EpFactory):
    """Drives processors and GPUs by PyTorch.

    Listing devices does not import torch: what it was built for is read from its files.
    """

    spi_version = (1, 0)
    name = "TorchExecutionProvider"
    vendor = "PyTorch"
    version = __version__
    options = OPTIONS
    tried_on: ClassVar[Mapping[ep.DeviceType, str]] = {
        ep.DeviceType.CPU: "x86-64 processors, on Linux",
        ep.DeviceType.GPU: "NVIDIA's H200, on Linux",
    }
    memory_spaces = TorchSpaces()
    verification = TorchVerification()

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice | ep.RefusedDevice]:
        """Processors, and the GPUs that the installed torch was built for."""
        build = find_build()
        reason = _unusable(build)
        if build is None or reason:
            for device in devices:
                if device.type is not ep.DeviceType.NPU:
                    yield ep.RefusedDevice(device=device, reason=reason, remedy=INSTALL)
            return
        loaded = sys.modules.get("torch")
        for device, place in match(devices, build):
            if isinstance(place, str):
                yield ep.RefusedDevice(
                    device=device,
                    reason=place,
                    remedy=INSTALL if "built without" in place else "",
                )
                continue
            yield ep.EpDevice(
                ep_name=self.name,
                ep_vendor=self.vendor,
                device=device,
                metadata={
                    "version": self.version,
                    "engine_version": build.version,
                    "torch_device": place.torch_name,
                    **({} if loaded is None else facts(loaded, place)),
                },
                # the CPU EP is there, and compiles; this is for those who ask for it
                by_name_only=device.type is ep.DeviceType.CPU,
            )

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        """An EP for one session.

        Raises:
            OptionError: options contradict each other, or do not fit the device.
            LookupError: torch does not find the device.
            RuntimeError: torch is missing, or too old.
        """
        settings = read_settings(options, session.intra_op_num_threads)
        build = _usable_build()
        place = _choose(devices, settings, build)
        torch = import_torch()
        if lacking := obstacle(torch, build, place):
            if settings.device:
                raise ep.OptionError(f"option 'device' is {settings.device}: {lacking}")
            raise LookupError(lacking)
        if settings.cuda_graphs and not place.captures:
            raise ep.OptionError(
                f"option 'cuda_graphs' is for CUDA and ROCm, not {place.torch_name}"
            )
        from onnxplug_torch.compilation import missing_compiler

        if settings.compile and (lacking := missing_compiler(place)):
            raise ep.OptionError(f"option 'compile': {lacking}, or turn it off")
        _configure(torch, settings, place)
        from onnxplug_torch.border import GuestBorder, border_at
        from onnxplug_torch.provider import TorchProvider

        border = border_at(torch, place, session)
        if settings.cuda_graphs and isinstance(border, GuestBorder):
            raise ep.OptionError(
                f"option 'cuda_graphs' captures streams of torch's, and those of "
                f"{place.location} are another EP's; turn it off, or keep that EP out "
                "with ONNXPLUG_BLOCK"
            )
        return TorchProvider(
            torch,
            torch.device(place.torch_name),
            border,
            settings,
            None if border.is_host else session.weights(border.location),
        )

    def diagnose(self) -> Iterable[ep.Finding]:
        """Whether torch can be imported, and which devices it finds."""
        build = find_build()
        if reason := _unusable(build):
            yield ep.Finding(level=ep.Level.ERROR, message=reason, remedy=INSTALL)
            return
        try:
            torch = import_torch()
        # a broken installation raises what it likes; it is what is asked for here
        except Exception as error:  # noqa: BLE001
            ep.raise_interruption(error)
            yield ep.Finding(
                level=ep.Level.ERROR,
                message=f"torch cannot be imported: {type(error).__name__}: {error}",
                remedy=INSTALL,
            )
            return
        found = ["cpu"]
        for kind in ("cuda", "xpu"):
            module = getattr(torch, kind, None)
            if module is not None and module.is_available():
                found += [f"{kind}:{n}" for n in range(module.device_count())]
        if torch.backends.mps.is_available():
            found.append("mps")
        yield ep.Finding(
            level=ep.Level.OK,
            message=f"torch {torch.__version__} drives {', '.join(found)}",
        )

    def engine_versions(self, device: ep.EpDevice) -> Mapping[str, str]:
        """The build of torch."""
        build = find_build()
        return {} if build is None else {"torch": build.version}

    def operators(self) -> Iterable[ep.OperatorSupport]:
        """All that torch computes."""
        from onnxplug_torch.operators import all_operators

        return [
            ep.OperatorSupport(
                op_type=each.kernel.op_type,
                domain=each.kernel.domain,
                since=each.kernel.since,
                until=each.kernel.until,
            )
            for each in all_operators()
        ]


def _unusable(build: Build | None) -> str:
    """Why there is nothing to compute with; empty if there is."""
    if build is None:
        return NOT_INSTALLED
    if build.is_too_old:
        needed = ".".join(map(str, OLDEST))
        return f"torch {build.version} is older than {needed}"
    return ""


def _usable_build() -> Build:
    """The installed torch.

    Raises:
        RuntimeError: it is missing, or too old.
    """
    build = find_build()
    reason = _unusable(build)
    if build is None or reason:
        raise RuntimeError(f"{reason}; {INSTALL}")
    return build


def _choose(devices: Sequence[ep.EpDevice], settings: Settings, build: Build) -> Place:
    if settings.device:
        return parse(settings.device, build)
    order = sorted(devices, key=lambda pair: pair.device.type is ep.DeviceType.CPU)
    return parse(order[0].metadata["torch_device"], build)


def _configure(torch: Any, settings: Settings, place: Place) -> None:
    """What torch has for a process, not for a session."""
    if settings.num_threads:
        torch.set_num_threads(settings.num_threads)
    if place.space in ("cuda", "hip"):
        torch.backends.cuda.matmul.allow_tf32 = settings.allow_tf32
        torch.backends.cudnn.allow_tf32 = settings.allow_tf32
