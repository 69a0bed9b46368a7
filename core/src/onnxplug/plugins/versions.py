"""Which versions of the SPI are spoken, and what each has changed.

A plugin that was written for an older minor is accepted unless it relies on what is
gone; after that its number says which of two forms it is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onnxplug.ep import SPI_VERSION
from onnxplug.errors import PluginIncompatible

if TYPE_CHECKING:
    from onnxplug.ep import Domain, EpFactory

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


def declares_run_options(factory: EpFactory) -> bool:
    """Whether an EP is given what its ``run_options`` declare, rather than texts."""
    return spi_version_of(factory) >= _RUN_OPTIONS
