"""The outputs of a model by the names that a caller gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug.session.outputs import own


class NamedOutputs:
    """Outputs that callers select by their names.

    Args:
        names: in the model's order.

    Attributes:
        output_names: these.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.output_names = list(names)
        self._selection = self.output_names, list(range(len(self.output_names)))

    def unknown(self, names: Sequence[str]) -> list[str]:
        """Those of *names* that no output has; the others are likely to be selected."""
        if names == self._selection[0]:
            return []
        unknown = [name for name in names if name not in self.output_names]
        if not unknown:
            places = [self.output_names.index(name) for name in names]
            self._selection = list(names), places
        return unknown

    def select(self, names: Sequence[str], results: list[Any]) -> list[Any]:
        """Those of *results* that have these names."""
        if names == self.output_names:
            return results
        known, places = self._selection
        if names != known:  # another thread may want others
            places = [self.output_names.index(name) for name in names]
        selected = [results[place] for place in places]
        return selected if len(set(places)) == len(places) else own(selected, [])
