"""What is known of EPs before any plugin is installed: names, suppliers, platforms.

It serves remedies and listings; nothing here decides what a session uses.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from onnxplug.authoring.record import Record
from onnxplug.errors import PluginError
from onnxplug.plugins.names import PREFIX, nearest, short_name

if TYPE_CHECKING:
    from onnxplug.plugins import PluginRegistry

# Remedies point to what every installation has, and so to no page...

LIST: Final = "`onnxplug eps` lists the installed EPs"
CHECK: Final = "`onnxplug doctor` checks what is installed"

_ANY: Final = ("x86-64", "aarch64", "other")
_PC: Final = ("x86-64",)
_ARM: Final = ("aarch64",)
_BOTH: Final = ("x86-64", "aarch64")

_CPU: Final = "CPUExecutionProvider"


class KnownEp(Record):
    """An EP that onnxplug knows by name.

    Attributes:
        name: ``CUDAExecutionProvider``.
        distribution: what supplies it today; empty when nothing of onnxplug does.
        platforms: the processors it runs on, by operating system; empty: everywhere.
        trial: where it runs besides for trying models, not at the speed of what it is
            for; as ``platforms``.
        aliases: what people write, beside the name without its suffix.
        gone: what became of it, if ONNX Runtime has it no more.
        instead: EPs for the same hardware, best first, beside the CPU's, which runs
            everything.
    """

    name: str
    distribution: str = ""
    platforms: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    trial: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    aliases: tuple[str, ...] = ()
    gone: str = ""
    instead: tuple[str, ...] = ()


KNOWN: Final = (
    KnownEp(
        "NvTensorRTRTXExecutionProvider",
        platforms={"Linux": _PC, "Windows": _PC},
        aliases=("nvrtx", "tensorrtrtx", "trtrtx", "nv_tensorrt_rtx"),
        instead=("TensorrtExecutionProvider", "CUDAExecutionProvider"),
    ),
    KnownEp(
        "TensorrtExecutionProvider",
        "onnxplug-tensorrt",
        {"Linux": _BOTH, "Windows": _PC},
        aliases=("trt",),
    ),
    KnownEp(
        "CUDAExecutionProvider",
        "onnxplug-cuda",
        {"Linux": _BOTH, "Windows": _PC},
    ),
    KnownEp("MIGraphXExecutionProvider", platforms={"Linux": _PC, "Windows": _PC}),
    KnownEp(
        "ROCMExecutionProvider",
        platforms={"Linux": _PC},
        gone="ONNX Runtime has MIGraphXExecutionProvider in its place since 1.23",
        instead=("MIGraphXExecutionProvider",),
    ),
    KnownEp(
        "OpenVINOExecutionProvider",
        "onnxplug-openvino",
        {"Linux": _BOTH, "Windows": _PC, "macOS": _BOTH},
    ),
    KnownEp(
        "DnnlExecutionProvider",
        platforms={"Linux": _BOTH, "Windows": _PC, "macOS": _BOTH},
        aliases=("onednn",),
        instead=("OpenVINOExecutionProvider",),
    ),
    KnownEp(
        "TvmExecutionProvider",
        platforms={"Linux": _BOTH, "Windows": _PC, "macOS": _BOTH},
        aliases=("stvm",),
        gone="ONNX Runtime has it no more",
    ),
    KnownEp(
        "VitisAIExecutionProvider",
        platforms={"Linux": _BOTH, "Windows": _PC},
    ),
    KnownEp(
        "QNNExecutionProvider",
        platforms={"Linux": _BOTH, "Windows": _BOTH, "Android": _ARM},
    ),
    KnownEp(
        "SNPEExecutionProvider",
        platforms={"Linux": _ARM, "Windows": _BOTH, "Android": _ARM},
        gone="ONNX Runtime has it no more",
        instead=("QNNExecutionProvider",),
    ),
    KnownEp("NnapiExecutionProvider", platforms={"Android": _ANY}),
    KnownEp("VSINPUExecutionProvider", platforms={"Linux": _ARM}),
    KnownEp(
        "JsExecutionProvider",
        platforms={"Emscripten": _ANY},
        aliases=("jsep",),
        instead=("WebGpuExecutionProvider",),
    ),
    KnownEp(
        "CoreMLExecutionProvider",
        "onnxplug-coreml",
        {"macOS": _BOTH, "iOS": _ARM},
        trial={"Linux": _PC},
    ),
    KnownEp(
        "ArmNNExecutionProvider",
        platforms={"Linux": _ARM, "Android": _ARM},
        gone="ONNX Runtime has it no more",
        instead=("ACLExecutionProvider",),
    ),
    KnownEp("ACLExecutionProvider", platforms={"Linux": _ARM, "Android": _ARM}),
    KnownEp(
        "DmlExecutionProvider",
        "onnxplug-directml",
        {"Windows": _BOTH},
        aliases=("directml",),
        instead=("OpenVINOExecutionProvider",),
    ),
    KnownEp("RknpuExecutionProvider", platforms={"Linux": _ARM}),
    KnownEp("WebNNExecutionProvider", platforms={"Emscripten": _ANY}),
    KnownEp(
        "WebGpuExecutionProvider",
        "onnxplug-webgpu",
        platforms={
            "Linux": _BOTH, "Windows": _BOTH, "macOS": _BOTH, "Emscripten": _ANY
        },
        instead=("OpenVINOExecutionProvider",),
    ),
    KnownEp(
        "XnnpackExecutionProvider",
        platforms={
            "Linux": _BOTH, "Windows": _BOTH, "macOS": _BOTH, "iOS": _ARM,
            "Android": _ANY, "Emscripten": _ANY,
        },
    ),
    KnownEp("CANNExecutionProvider", platforms={"Linux": _BOTH}, aliases=("ascend",)),
    KnownEp(
        "AzureExecutionProvider",
        platforms={"Linux": _BOTH, "Windows": _BOTH, "macOS": _BOTH},
    ),
    KnownEp(_CPU, "onnxplug-cpu"),
)  # fmt: skip
"""In order of priority, which is that of ONNX Runtime's ``get_all_providers``.

A distribution is named only if it can be installed.
"""


def find_known(name: str) -> KnownEp | None:
    """The EP that people mean by *name*, in any spelling; ``None`` when unknown."""
    wanted = short_name(name.strip()).removeprefix(PREFIX)
    for known in KNOWN:
        if wanted in (short_name(known.name), *known.aliases):
            return known
    return None


def canonical(name: str, registry: PluginRegistry) -> str:
    """The EP's own name for what a user wrote; *name* itself when nobody knows it."""
    try:
        return registry.resolve(name).name
    except PluginError:
        known = find_known(name)
        return known.name if known else name


def by_priority(names: Iterable[str]) -> list[str]:
    """*names* without repetition, best first: known ones, others by name, the CPU's."""
    known = [ep.name for ep in KNOWN]
    *accelerators, cpu = known
    given = set(names)
    others = sorted(given.difference(known))
    return [name for name in (*accelerators, *others, cpu) if name in given]


def missing_reason(name: str) -> str:
    """That no installed plugin supplies *name*, and what is known of it."""
    known = find_known(name)
    if known is None:
        return f"no installed plugin supplies an EP named {name!r}"
    gone = f"; {known.gone}" if known.gone else ""
    return f"no installed plugin supplies {known.name}{gone}"


def remedy(name: str, installed: Iterable[str]) -> str:
    """What to do when no installed plugin supplies *name*.

    Args:
        installed: the names of the EPs that are installed and not broken.
    """
    known = find_known(name)
    installed = set(installed)
    if known is None:
        names = [*installed, *(ep.name for ep in KNOWN)]
        aliases = [alias for ep in KNOWN for alias in ep.aliases]
        hint = nearest(name, [*names, *aliases]).strip()
        return f"{LIST}.  {hint}" if hint else LIST
    if not runs_on(known, *this_platform()):
        why = _platforms(known)
    elif not known.distribution:
        why = "no distribution of onnxplug supplies it"
    else:
        return f"install the distribution {known.distribution}"
    return f"{why}; {instead_of(known, installed)}"


def instead_of(known: KnownEp, installed: Iterable[str]) -> str:
    """To use what serves in place of *known*: what there is, and nothing else."""
    installed = set(installed)
    ways = []
    for name in (*known.instead, _CPU):
        other = find_known(name)
        if name in installed:
            ways.append(name)
        elif other and other.distribution and runs_on(other, *this_platform()):
            ways.append(f"{name} (install the distribution {other.distribution})")
    instead = f"use {' or '.join(ways)} instead"
    if tries_on(known, *this_platform()) and known.name not in installed:
        return f"{instead}, or install {known.distribution} to try models"
    return instead


def runs_on(known: KnownEp, system: str, processor: str) -> bool:
    """Whether *known* exists for an operating system and a kind of processor."""
    return not known.platforms or processor in known.platforms.get(system, ())


def tries_on(known: KnownEp, system: str, processor: str) -> bool:
    """Whether *known* is there for trying models only."""
    return processor in known.trial.get(system, ())


def platform_reason(known: KnownEp, system: str, processor: str) -> str:
    """Why *known* does not run there; empty when it does."""
    if known.gone:
        return f"{known.name} is no more: {known.gone}"
    if runs_on(known, system, processor):
        return ""
    return f"{_platforms(known)}; this is {system} on {processor}"


def this_platform() -> tuple[str, str]:
    """This operating system and the kind of its processor, in the table's words."""
    name: str = sys.platform
    system = _SYSTEMS.get(name, name)
    machine = platform.machine().lower()
    kinds = {"x86_64": "x86-64", "amd64": "x86-64", "arm64": "aarch64"}
    processor = kinds.get(machine, machine)
    return system, processor if processor in _BOTH else "other"


_SYSTEMS: Final = {
    "linux": "Linux",
    "win32": "Windows",
    "darwin": "macOS",
    "android": "Android",
    "ios": "iOS",
    "emscripten": "Emscripten",
}


def _platforms(known: KnownEp) -> str:
    text = f"{known.name} runs on {_listed(known.platforms)}"
    if known.trial:
        text += f", and for trying models on {_listed(known.trial)}"
    return text


def _listed(platforms: Mapping[str, tuple[str, ...]]) -> str:
    return ", ".join(
        system if processors == _ANY else f"{system} ({', '.join(processors)})"
        for system, processors in platforms.items()
    )
