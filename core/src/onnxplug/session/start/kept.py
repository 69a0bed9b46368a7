"""What is kept of a session for the next start, and how it is found again."""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from onnxplug import warn
from onnxplug.authoring.entries import Cache
from onnxplug.authoring.files import Identity
from onnxplug.authoring.record import Record
from onnxplug.guard import FAILURES
from onnxplug.interruption import raise_interruption
from onnxplug.session.start.key import MARSHAL
from onnxplug.session.start.partition import KeptPartition
from onnxplug.session.start.runner import StartRunner
from onnxplug.session.start.weights import KeptWeights
from onnxplug.weights import of_host

if TYPE_CHECKING:
    from onnxplug.session.opening import OpenedModel
    from onnxplug.session.request import SessionRequest

FOLDER: Final = "onnxplug-sessions"
"""The name of the folder that entries are in."""


class KeptSession(Record):
    """A session of one partition, as plain values.

    Attributes:
        ep: the name of its EP.
        restore: the module and the name of the function that restores the partition.
        content: what that function needs.
        partition, weights: as of :mod:`~.start.partition` and :mod:`~.start.weights`.
        weight_files: paths and states of the files that weights are in.
        mapped: these are mapped.
        files: those of the model.
        inputs, declared: names and types of the model's inputs and outputs.
        described: as callers see them.
        results: types of the partition's outputs.
        taken: which of the model's inputs the partition takes, in its order.
        given: which of the partition's outputs the model gives, in its order.
    """

    ep: str
    restore: tuple[str, str]
    content: bytes
    partition: tuple[Any, ...]
    weights: dict[str, tuple[Any, ...]]
    weight_files: list[tuple[str, tuple[int, ...]]]
    mapped: bool
    files: Mapping[str, Identity]
    inputs: list[tuple[str, Any]]
    declared: list[tuple[str, Any]]
    described: list[tuple[Any, ...]]
    results: list[Any]
    taken: list[int]
    given: list[int]

    @property
    def outputs(self) -> list[str]:
        """The names of the model's outputs."""
        return [name for name, _ in self.declared]

    def runner(self) -> StartRunner:
        """What runs it.

        Raises:
            Exception: the EP cannot restore it; whatever its function raises.
        """
        module, name = self.restore
        weights = KeptWeights(self.weights, self.weight_files, mapped=self.mapped)
        partition: Any = KeptPartition(self.partition, weights)
        restore = getattr(import_module(module), name)
        return StartRunner(self, restore(partition, self.content, of_host))


class KeptStart:
    """The entry of one session.

    Args:
        key: its name.
        request: what is asked for.
    """

    def __init__(self, key: str, request: SessionRequest) -> None:
        self._key = key
        self._request = request
        self._cache = Cache(FOLDER)
        self._warned = warn.given

    def runner(self) -> StartRunner | None:
        """What runs the session, if it was kept and can be restored."""
        content = self._cache.load(self._key)
        if content is None:
            return None
        try:
            values = list(marshal.loads(content))
            place = KeptSession._fields.index("files")
            files = values[place].items()
            values[place] = {path: Identity(*identity) for path, identity in files}
            return KeptSession(*values).runner()
        # whatever it is, the model tells
        except FAILURES as error:
            raise_interruption(error)
            return None

    def keep(self, opened: OpenedModel) -> None:
        """Keep what was opened for the next start, if plain values can stand for it.

        Not of what warned, which is to be heard each time.
        """
        if warn.given != self._warned or not self._cache.is_open:
            return
        try:
            from onnxplug.session.start.keeping import kept_session

            kept = kept_session(self._request, opened)
            if kept is not None:
                files = {path: tuple(each) for path, each in kept.files.items()}
                values = tuple(kept._replace(files=files))
                self._cache.store(self._key, marshal.dumps(values, MARSHAL))
                self._cache.prune_if_due()
        # the session is made, and does without
        except FAILURES as error:
            raise_interruption(error)
