"""What is known of EPs before any plugin is installed: names, suppliers, platforms.

It serves remedies and listings; nothing here decides what a session uses.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from onnxplug.errors import PluginError
from onnxplug.plugins.names import nearest, short_name

if TYPE_CHECKING:
    from onnxplug.plugins import PluginRegistry

PAGE: Final = "docs/how-to/choose-devices.md"
"""The page that tells how EPs are installed and chosen."""

_ANY: Final = ("x86-64", "aarch64", "other")
_PC: Final = ("x86-64",)
_BOTH: Final = ("x86-64", "aarch64")


class KnownEp(NamedTuple):
    """An EP that onnxplug knows by name.

    Attributes:
        name: ``CUDAExecutionProvider``.
        distribution: what supplies it; empty when nothing of onnxplug does.
        platforms: the processors it runs on, by operating system; empty: everywhere.
        aliases: what people write, beside the name without its suffix.
    """

    name: str
    distribution: str
    platforms: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    aliases: tuple[str, ...] = ()


KNOWN: Final = (
    KnownEp(
        "TensorrtExecutionProvider",
        "onnxplug-tensorrt",
        {"Linux": _BOTH, "Windows": _PC},
        ("trt",),
    ),
    KnownEp("CUDAExecutionProvider", "onnxplug-cuda", {"Linux": _BOTH, "Windows": _PC}),
    KnownEp(
        "OpenVINOExecutionProvider",
        "onnxplug-openvino",
        {"Linux": _BOTH, "Windows": _PC, "macOS": _BOTH},
    ),
    KnownEp("CoreMLExecutionProvider", "onnxplug-coreml", {"macOS": _BOTH}),
    KnownEp(
        "DmlExecutionProvider", "onnxplug-directml", {"Windows": _ANY}, ("directml",)
    ),
    KnownEp(
        "WebGpuExecutionProvider",
        "",
        {"Linux": _BOTH, "Windows": _BOTH, "macOS": _BOTH},
    ),
    KnownEp("CPUExecutionProvider", "onnxplug-cpu"),
)
"""In order of priority."""


def find_known(name: str) -> KnownEp | None:
    """The EP that people mean by *name*, in any spelling; ``None`` when unknown."""
    wanted = short_name(name.strip())
    for known in KNOWN:
        if wanted in (short_name(known.name), known.distribution, *known.aliases):
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


def remedy(name: str) -> str:
    """What to do when no installed plugin supplies *name*."""
    known = find_known(name)
    if known is None:
        hint = nearest(name, [ep.name for ep in KNOWN]).lstrip()
        what = f"install the distribution that supplies it (see {PAGE})"
        return f"{what}.  {hint}" if hint else what
    if not runs_on(known, *this_platform()):
        return f"{_platforms(known)}; choose another EP (see {PAGE})"
    if not known.distribution:
        return f"no distribution of onnxplug supplies it yet; choose another ({PAGE})"
    return f"install the distribution {known.distribution} (see {PAGE})"


def runs_on(known: KnownEp, system: str, processor: str) -> bool:
    """Whether *known* exists for an operating system and a kind of processor."""
    return not known.platforms or processor in known.platforms.get(system, ())


def platform_reason(known: KnownEp, system: str, processor: str) -> str:
    """Why *known* does not run there; empty when it does."""
    if runs_on(known, system, processor):
        return ""
    return f"{_platforms(known)}; this is {system} on {processor}"


def this_platform() -> tuple[str, str]:
    """This operating system and the kind of its processor, in the table's words."""
    name: str = sys.platform
    system = {"linux": "Linux", "win32": "Windows", "darwin": "macOS"}.get(name, name)
    machine = platform.machine().lower()
    kinds = {"x86_64": "x86-64", "amd64": "x86-64", "arm64": "aarch64"}
    processor = kinds.get(machine, machine)
    return system, processor if processor in _BOTH else "other"


def _platforms(known: KnownEp) -> str:
    places = [
        system if processors == _ANY else f"{system} ({', '.join(processors)})"
        for system, processors in known.platforms.items()
    ]
    return f"{known.name} runs on {', '.join(places)}"
