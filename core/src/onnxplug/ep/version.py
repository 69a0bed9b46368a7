"""The version of the SPI, apart from the version of any distribution."""

from __future__ import annotations

from typing import Final

SPI_VERSION: Final = (0, 6)
"""A plugin is accepted when its major equals this, its minor is not greater, and it
defines nothing that was removed since."""
