"""What a session was asked for: enough to make it anew, here or in another process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onnxplug.authoring.record import Record
from onnxplug.errors import InvalidArgument, OptionTypeError
from onnxplug.guard import in_words
from onnxplug.options import SessionOptions

if TYPE_CHECKING:
    from onnxplug.authoring.files import Identity
    from onnxplug.plugins import PluginRegistry
    from onnxplug.shapes.symbols import Symbol


class SessionRequest(Record):
    """The arguments of a session, read.

    Attributes:
        source: the model's path or its bytes.
        disabled: names of passes to leave out.
        registry: where EPs are looked up; ``None``: the process's.
        files: those of the model as they were; ``None`` before it was loaded.
        falls_back: a run in which an EP fails is done again with the CPU EP.
        cpu_stands_in: the CPU EP is named after the EPs that are.
        belied: names of sizes that runs showed not to mean one size.
    """

    source: str | memoryview
    options: SessionOptions
    providers: Any
    provider_options: Any
    policy: Any
    disabled: tuple[str, ...]
    registry: PluginRegistry | None = None
    files: Mapping[str, Identity] | None = None
    falls_back: bool = False
    cpu_stands_in: bool = False
    belied: frozenset[Symbol] = frozenset()

    @property
    def cpu_fallback(self) -> bool:
        """Whether nodes that no other EP takes may go to the CPU EP."""
        return self.options.config["session.disable_cpu_ep_fallback"] != "1"

    def pickled(self) -> SessionRequest:
        """The request as another process can read it.

        Raises:
            InvalidArgument: its registry is not the process's.
        """
        if self.registry is not None:
            raise InvalidArgument(
                "a session that was given a registry cannot be pickled, since plugins "
                "are loaded per process; make the session where it is to run"
            )
        source = self.source
        plain = source.tobytes() if isinstance(source, memoryview) else source
        # what this session has written is not written again
        options = self.options.snapshot()
        options.add_session_config_entry("ep.context_enable", "0")
        # elsewhere the same files are others
        return self._replace(source=plain, options=options, files=None)

    def unpickled(self) -> SessionRequest:
        """The request that :meth:`pickled` was made from."""
        if isinstance(self.source, bytes):
            return self._replace(source=memoryview(self.source))
        return self


def read_source(path_or_bytes: Any) -> str | memoryview:
    """The path of a model, or its bytes."""
    if isinstance(path_or_bytes, str | os.PathLike):
        return os.fsdecode(path_or_bytes)
    from onnxplug.graph.load import in_memory  # of a path not needed at once

    source, _ = in_memory(path_or_bytes)
    return source


def read_options(sess_options: SessionOptions | None) -> SessionOptions:
    """A copy of the options as they are now.

    Raises:
        OptionTypeError: they are something else.
    """
    if not isinstance(sess_options, SessionOptions | None):
        raise OptionTypeError(
            f"sess_options is {in_words(sess_options)}; expected "
            "onnxplug.SessionOptions"
        )
    return (sess_options or SessionOptions()).snapshot()
