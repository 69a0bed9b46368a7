"""What a session and a run can be told."""

from __future__ import annotations

import difflib
from typing import Final

from onnxplug.errors import OptionError

_CONFIG_KEYS: Final = {
    "session.disable_cpu_ep_fallback": "0",
    "session.model_external_initializers_file_folder_path": "",
    "optimization.disable_specified_optimizers": "",
}
"""The config entries of ONNX Runtime that mean something here, with defaults."""


class SessionOptions:
    """Options of one session.

    Attributes:
        intra_op_num_threads: threads that a node may use; 0 leaves it to the EP.
    """

    def __init__(self) -> None:
        self.intra_op_num_threads = 0
        self._config: dict[str, str] = {}

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set a config entry.

        Raises:
            OptionError: there is no such entry.
        """
        if key not in _CONFIG_KEYS:
            near = difflib.get_close_matches(key, _CONFIG_KEYS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise OptionError(
                f"there is no session config entry {key!r}{hint}  "
                f"The entries: {', '.join(_CONFIG_KEYS)}."
            )
        self._config[key] = str(value)

    def get_session_config_entry(self, key: str) -> str:
        """The value of a config entry, its default when it was not set.

        Raises:
            OptionError: there is no such entry.
        """
        if key not in _CONFIG_KEYS:
            raise OptionError(f"there is no session config entry {key!r}")
        return self._config.get(key, _CONFIG_KEYS[key])

    @property
    def config(self) -> dict[str, str]:
        """All config entries, with defaults."""
        return _CONFIG_KEYS | self._config
