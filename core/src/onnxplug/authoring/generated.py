"""Names of sizes that the host makes up where nothing is known."""

from __future__ import annotations

from typing import Final

GENERATED: Final = "unk__"
"""How such names begin, also in expressions; the same name is the same size."""
