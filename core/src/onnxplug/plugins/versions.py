"""Which versions of the SPI are spoken, and what each has changed.

A plugin that was written for an older minor is accepted unless it relies on what is
gone.  Once accepted, its number says in which of two forms it is given what changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from onnxplug import ep
from onnxplug.ep import SPI_VERSION, EpFactory
from onnxplug.ep.version import DEPRECATED
from onnxplug.errors import PluginIncompatible

if TYPE_CHECKING:
    from onnxplug.ep import Domain

REMOVED: Final[Mapping[tuple[int, int], Mapping[str, Mapping[str, str]]]] = {
    (0, 4): {
        "EpFactory": {
            "create_allocator": "EpFactory.memory_spaces",
            "create_data_transfer": "EpFactory.memory_spaces",
            "create_stream": "EpFactory.memory_spaces",
        },
    },
    (0, 6): {
        "EpFactory": {
            "create_context": "EpFactory.memory_spaces",
            "spare_memory_spaces": "EpFactory.memory_spaces",
            "keeps_contexts": "EpFactory.memory_spaces",
            "probes": "EpFactory.verification",
            "probe_compile_seconds": "EpFactory.verification",
            "compatibility_info": "EpFactory.compatibility",
            "check": "EpFactory.compatibility",
        },
        "ExecutionProvider": {
            "caches": "ExecutionProvider.serialiser",
            "restore": "ExecutionProvider.serialiser",
            "specialises": "ExecutionProvider.specialiser",
            "pads": "ExecutionProvider.specialiser",
            "examine": "ExecutionProvider.specialiser",
            "captures": "ExecutionProvider.capture",
            "expands": "Preferences.expands",
            "rewrite": "Preferences.rewrite",
            "estimate": "ExecutionProvider.cost_model",
        },
        "CompiledPartition": {
            "serialize": "ExecutionProvider.serialiser",
            "prepare": "CompiledPartition.prewarmer",
            "tiers": "CompiledPartition.report",
            "node_tiers": "CompiledPartition.report",
            "notes": "CompiledPartition.report",
            "counts": "CompiledPartition.report",
        },
    },
}
"""The members of a class that a version has no more, and what it has instead."""

_BEFORE_THE_PROMISE: Final = (0, 7)
"""The last version before 1.0, which took nothing from it."""

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
    """Accept what was written for this major version and a minor one not newer, or for
    0.x.

    Raises:
        PluginIncompatible: it is of another version.
        TypeError: it says that in another form than two numbers.
    """
    major, minor = spi_version_of(supplied)
    newest = SPI_VERSION if major else _BEFORE_THE_PROMISE
    if major not in (0, SPI_VERSION[0]) or (major, minor) > newest:
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
    """Refuse a factory that defines what was removed, whatever SPI it says, and warn of
    what it defines that will be.

    The host would never call it: an EP of a device would be taken for one of the host.

    Raises:
        PluginIncompatible: it does.
    """
    gone = removed_from(factory, "EpFactory")
    if gone:
        raise PluginIncompatible(
            f"written for SPI {_text(spi_version_of(factory))}, {gone}",
            plugin=factory.name,
        )
    warn_deprecated(factory, "EpFactory")


def removed_from(made: object, kind: str) -> str:
    """What an object of an EP's defines that the host never calls, as it was removed
    from its base, and what to do about it, in words; empty if there is nothing.

    Args:
        kind: the base, by its name in ``onnxplug.ep``.
    """
    own = getattr(made, "__dict__", {})
    for version, removed in REMOVED.items():
        gone = removed.get(kind, {})
        defined = [name for name in gone if name in own or hasattr(type(made), name)]
        if defined:
            instead = " and ".join(dict.fromkeys(gone[name] for name in defined))
            new = _text(version)
            return (
                f"it defines {kind}.{', '.join(defined)}, which SPI {new} replaced by "
                f"{instead}; upgrade the plugin to a release for SPI {new}, or ask its "
                "makers for one"
            )
    return ""


def warn_deprecated(made: object, kind: str) -> None:
    """Warn once, at the module of its class, of what an object of an EP's defines that
    the next major version will not have.

    Args:
        kind: the base, by its name in ``onnxplug.ep``.
    """
    if not DEPRECATED:
        return
    cls, base = type(made), getattr(ep, kind)
    defined = set(getattr(made, "__dict__", {}))
    for each in cls.__mro__:
        # what helps authors is not theirs to change
        if each not in base.__mro__ and each.__module__.split(".")[0] != "onnxplug":
            defined |= vars(each).keys()
    for name, deprecation in DEPRECATED.items():
        of, _, member = name.partition(".")
        if of == kind and member in defined:
            _warn_at(cls, f"{cls.__qualname__}: {deprecation.text(name)}")


def _warn_at(cls: type, text: str) -> None:
    """Warn once, as if the first line of the module of *cls* did."""
    import sys
    import warnings

    names = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    warnings.warn_explicit(
        text,
        DeprecationWarning,
        filename=names.get("__file__") or cls.__module__,
        lineno=1,
        module=cls.__module__,
        registry=names.setdefault("__warningregistry__", {}),
    )


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def declares_run_options(factory: EpFactory) -> bool:
    """Whether an EP is given what its ``run_options`` declare, rather than texts."""
    return spi_version_of(factory) >= _RUN_OPTIONS
