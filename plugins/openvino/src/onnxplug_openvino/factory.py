"""Which devices the OpenVINO EP drives, its options, and what may be missing for it."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from onnxplug import ep
from onnxplug.authoring.compilers import SameCompiler
from onnxplug.authoring.locks import new_lock
from onnxplug_openvino import __version__
from onnxplug_openvino.engine import import_openvino, make_core
from onnxplug_openvino.options import OPTIONS, Settings, read_settings

_INTEL: Final = 0x8086
_NOT_INSTALLED: Final = "openvino is not installed"
_INSTALL: Final = 'pip install "openvino>=2026.2,<2027" in this environment'
_NEEDED: Final = {"FP16": "FP16", "BF16": "BF16"}


class OpenVINOFactory(ep.EpFactory):
    """Drives processors, and Intel's GPUs and NPUs, by OpenVINO.

    Listing devices does not import OpenVINO: a device's metadata has the versions
    of the EP and of the engine, and the hardware's own metadata its name.  What it can
    compute is reported by ``diagnose``.
    """

    spi_version = (1, 0)
    name = "OpenVINOExecutionProvider"
    vendor = "Intel"
    vendor_id = _INTEL
    version = __version__
    options = OPTIONS
    tried_on: ClassVar[Mapping[ep.DeviceType, str]] = {
        ep.DeviceType.CPU: "x86-64 processors, on Linux"
    }

    def __init__(self) -> None:
        self._core: Any = None
        self._lock = new_lock()

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice | ep.RefusedDevice]:
        """Every processor, and Intel's GPUs and NPUs; those of others are refused."""
        metadata = {"version": self.version}
        installed = _is_installed()
        if installed and (version := _engine_version()):
            metadata["engine_version"] = version
        for device in devices:
            if device.type is not ep.DeviceType.CPU and device.vendor_id != _INTEL:
                found = f"; this is of {device.vendor}" if device.vendor else ""
                yield ep.RefusedDevice(
                    device=device,
                    reason=f"of GPUs and NPUs OpenVINO drives Intel's{found}",
                )
            elif not installed:
                yield ep.RefusedDevice(
                    device=device, reason=_NOT_INSTALLED, remedy=_INSTALL
                )
            else:
                yield ep.EpDevice(
                    ep_name=self.name,
                    device=device,
                    ep_vendor=self.vendor,
                    metadata=metadata,
                    # NPUs compute floating point in 16 bits only
                    default_options={"precision": "FP16"}
                    if device.type is ep.DeviceType.NPU
                    else {},
                )

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        """An EP for one session.

        Raises:
            OptionError: an option, or its value, does not fit the device.
            RuntimeError: OpenVINO finds no such device.
        """
        settings = read_settings(devices, options, session.intra_op_num_threads)
        core = self._engine()
        from onnxplug_openvino.provider import OpenVINOProvider

        available = list(core.available_devices)
        kinds = {name.partition(".")[0] for name in available}
        for kind in settings.base_devices:
            if kind not in kinds:
                raise RuntimeError(
                    f"OpenVINO finds no {kind} here; it finds {', '.join(available)}.  "
                    f"{_REMEDIES.get(kind, '')}"
                )
        needed = _NEEDED.get(settings.precision)
        for kind in settings.base_devices if needed else ():
            able = core.get_property(kind, "OPTIMIZATION_CAPABILITIES")
            if needed not in able:
                raise ep.OptionError(
                    f"option 'precision' is {settings.precision}, which {kind} cannot "
                    f"compute here; it computes {', '.join(able)}"
                )
        _check_properties(core, settings)
        return OpenVINOProvider(core, settings, session.logger)

    def _engine(self) -> Any:
        """OpenVINO's ``Core``, made once for all sessions."""
        with self._lock:
            if self._core is None:
                self._core = make_core()
            return self._core

    def diagnose(self) -> Iterable[ep.Finding]:
        """Whether OpenVINO can be imported, its devices, and drivers that it misses."""
        if not _is_installed():
            yield ep.Finding(
                level=ep.Level.ERROR,
                message=_NOT_INSTALLED,
                remedy=_INSTALL,
            )
            return
        try:
            core = self._engine()
            version = import_openvino().__version__
        # a broken installation raises what it likes; it is what is asked for here
        except Exception as error:  # noqa: BLE001
            ep.raise_interruption(error)
            yield ep.Finding(
                level=ep.Level.ERROR,
                message=f"openvino cannot be used: {type(error).__name__}: {error}",
                remedy=_INSTALL,
            )
            return
        available = list(core.available_devices)
        for name in available:
            title = core.get_property(name, "FULL_DEVICE_NAME")
            able = ", ".join(core.get_property(name, "OPTIMIZATION_CAPABILITIES"))
            yield ep.Finding(
                level=ep.Level.OK,
                message=f"OpenVINO {version} drives {name}: {title} ({able})",
            )
        yield from _missing({name.partition(".")[0] for name in available})

    def engine_versions(self, device: ep.EpDevice) -> Mapping[str, str]:
        """The version of OpenVINO's distribution, if it is one."""
        version = _engine_version()
        return {"openvino": version} if version else {}

    @property
    def compatibility(self) -> ep.CompatibilityCheck:  # type: ignore[override]
        """As by default, but for other processors."""
        return _AnyProcessor(self)

    def operators(self) -> Iterable[ep.OperatorSupport]:
        """What was measured to be right."""
        from onnxplug_openvino.operators import operators

        return operators()

    def close(self) -> None:
        """Release OpenVINO's ``Core``."""
        with self._lock:
            self._core = None


class _AnyProcessor(SameCompiler):
    """To what was compiled for a processor, another one is no obstacle.

    OpenVINO serialises what it has rewritten for a processor, not the code it made of
    that, and itself refuses what needs other instructions.
    """

    def portable(self, device: ep.EpDevice) -> Sequence[str]:
        """What a processor is."""
        is_cpu = device.device.type is ep.DeviceType.CPU
        return ["device description", "device device_id"] if is_cpu else []


def _is_installed() -> bool:
    return importlib.util.find_spec("openvino") is not None


@functools.cache
def _engine_version() -> str | None:
    """The version of the distribution, which every session asks for."""
    try:
        return importlib.metadata.version("openvino")
    except importlib.metadata.PackageNotFoundError:
        return None  # it is from an archive of Intel's


_OF_CORE: Final = frozenset(
    {
        "AUTO_BATCH_TIMEOUT",
        "CACHE_DIR",
        "CACHE_MODE",
        "DEVICE_PROPERTIES",
        "ENABLE_MMAP",
    }
)
"""Properties that OpenVINO takes for every device, and that no device lists."""


def _check_properties(core: Any, settings: Settings) -> None:
    """Refuse what the device does not know, before a partition fails for it.

    Raises:
        OptionError: a property, from whichever option.
    """
    device = settings.device.partition(":")[0]
    try:
        listed = core.get_property(device, "SUPPORTED_PROPERTIES")
    except RuntimeError as error:
        ep.raise_interruption(error)
        return  # HETERO and MULTI say what they know only of models
    known = {*map(str, listed), *_OF_CORE}
    for name in settings.properties:
        if name.partition(" ")[0] not in known:
            raise ep.OptionError(
                f"{device} of OpenVINO has no property {name}, which option "
                f"{_OPTION_OF.get(name, 'load_config')!r} sets; "
                f"it has {', '.join(sorted(map(str, listed)))}"
            )


_OPTION_OF: Final = {
    "MODEL_PRIORITY": "model_priority",
    "NUM_STREAMS": "num_streams",
    "INFERENCE_NUM_THREADS": "num_of_threads",
    "INFERENCE_PRECISION_HINT": "precision",
    "EXECUTION_MODE_HINT": "precision",
    "GPU_QUEUE_THROTTLE": "enable_opencl_throttling",
}

_REMEDIES: Final = {
    "CPU": 'Reinstall it: pip install --force-reinstall "openvino>=2026.2,<2027".',
    "GPU": "Install Intel's compute runtime (package intel-opencl-icd on Debian and "
    "Ubuntu) and let your user read /dev/dri/renderD*.",
    "NPU": "Install Intel's NPU driver (github.com/intel/linux-npu-driver) and let "
    "your user read /dev/accel/accel*.",
}


def _missing(found: set[str]) -> Iterable[ep.Finding]:
    """Intel hardware that the host sees and OpenVINO does not, and why."""
    if not sys.platform.startswith("linux"):
        return
    from pathlib import Path

    if "GPU" not in found:
        if not _loads("libOpenCL.so.1"):
            yield ep.Finding(
                level=ep.Level.WARNING,
                message="libOpenCL.so.1 is not found, without which there are no GPUs",
                remedy="install ocl-icd-libopencl1 (Debian, Ubuntu) or ocl-icd "
                "(Fedora), and Intel's compute runtime, to run on an Intel GPU",
            )
        elif any(Path("/dev/dri").glob("renderD*")):
            yield ep.Finding(
                level=ep.Level.WARNING,
                message="there is a GPU that OpenVINO does not find",
                remedy=f"if it is Intel's: {_REMEDIES['GPU']}",
            )
    if "NPU" not in found and any(Path("/dev/accel").glob("accel*")):
        yield ep.Finding(
            level=ep.Level.WARNING,
            message="there is an accelerator that OpenVINO does not find",
            remedy=f"if it is an Intel NPU: {_REMEDIES['NPU']}",
        )


def _loads(library: str) -> bool:
    import ctypes

    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
