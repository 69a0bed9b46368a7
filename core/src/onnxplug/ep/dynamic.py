"""Options that change while a session lives.

Of use to few EPs, so not imported by :mod:`onnxplug.ep` until it is asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping


class DynamicOptions(ABC):
    """Takes what ``InferenceSession.set_ep_dynamic_options`` is given."""

    @abstractmethod
    def set(self, options: Mapping[str, str]) -> None:
        """Change what *options* name, for runs that begin from now on.

        Called from any thread, also while runs go on.  Each EP of the session that
        takes any is given all of them.

        Raises:
            OptionError: one is not known, or cannot have this value; then none of them
                is changed.
        """
