"""Which versions of the SPI are spoken, and what each has changed.

A plugin that was written for an older minor is accepted unless it relies on what is
gone.  Once accepted, its number says in which of two forms it is given what changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from onnxplug.ep import SPI_VERSION, EpFactory
from onnxplug.errors import PluginIncompatible

if TYPE_CHECKING:
    from onnxplug.ep import Domain

_CONTEXTS: Final = "EpFactory.memory_spaces"
_VERIFICATION: Final = "EpFactory.verification"
_COMPATIBILITY: Final = "EpFactory.compatibility"

REMOVED: Final[Mapping[tuple[int, int], Mapping[str, str]]] = {
    (0, 4): {
        "create_allocator": _CONTEXTS,
        "create_data_transfer": _CONTEXTS,
        "create_stream": _CONTEXTS,
    },
    (0, 6): {
        "create_context": _CONTEXTS,
        "spare_memory_spaces": _CONTEXTS,
        "keeps_contexts": _CONTEXTS,
        "probes": _VERIFICATION,
        "probe_compile_seconds": _VERIFICATION,
        "compatibility_info": _COMPATIBILITY,
        "check": _COMPATIBILITY,
    },
}
"""The members of ``EpFactory`` that a version has no more, and what it has instead."""

_RUN_OPTIONS: Final = (0, 4)
"""Since then ``RunContext.options`` is what ``EpFactory.run_options`` declares; before,
it was all of a run's config entries, as written."""


def spi_version_of(supplied: EpFactory | Domain) -> tuple[int, int]:
    """The SPI that *supplied* was written for.

    Raises:
        TypeError: it says that in another form than two numbers.
    """
    version: object = getattr(supplied, "spi_version", None)
    match version:
        case (int(major), int(minor)):
            return major, minor
    raise TypeError(
        f"spi_version of {supplied.name} is {version!r}; expected two numbers, such as "
        "(0, 3)"
    )


def check_spi_version(supplied: EpFactory | Domain) -> None:
    """Accept what was written for this major version and a minor one not newer.

    Raises:
        PluginIncompatible: it is of another version.
        TypeError: it says that in another form than two numbers.
    """
    major, minor = spi_version_of(supplied)
    if major != SPI_VERSION[0] or minor > SPI_VERSION[1]:
        raise PluginIncompatible(
            f"written for SPI {major}.{minor}, and this onnxplug speaks "
            f"{SPI_VERSION[0]}.{SPI_VERSION[1]}; "
            + (
                "upgrade onnxplug"
                if (major, minor) > SPI_VERSION
                else "upgrade the plugin"
            ),
            plugin=supplied.name,
        )


def check_removed(factory: EpFactory) -> None:
    """Refuse a factory that defines what was removed, whatever SPI it says.

    The host would never call it: an EP of a device would be taken for one of the host.

    Raises:
        PluginIncompatible: it does.
    """
    written_for = spi_version_of(factory)
    for version, removed in REMOVED.items():
        defined = [name for name in removed if _defines(factory, name)]
        if defined:
            instead = " and ".join(dict.fromkeys(removed[name] for name in defined))
            new, old = _text(version), _text(written_for)
            raise PluginIncompatible(
                f"written for SPI {old}, it defines EpFactory.{', '.join(defined)}, "
                f"which SPI {new} replaced by {instead}; upgrade the plugin to a "
                f"release for SPI {new}, or ask its makers for one",
                plugin=factory.name,
            )


def _defines(factory: EpFactory, name: str) -> bool:
    own = getattr(factory, name, None)
    inherited = getattr(EpFactory, name, None)
    return own is not None and getattr(own, "__func__", own) is not inherited


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def declares_run_options(factory: EpFactory) -> bool:
    """Whether an EP is given what its ``run_options`` declare, rather than texts."""
    return spi_version_of(factory) >= _RUN_OPTIONS
