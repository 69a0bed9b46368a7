"""Sessions on a node: of shared models or of paths, with what Ray assigns to the
process."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnxplug
from onnxplug.errors import PluginError, SelectionError
from onnxplug_ray.artefacts import Artefacts
from onnxplug_ray.errors import EpNotOnNode
from onnxplug_ray.kept_files import KeptFiles
from onnxplug_ray.node import assigned_threads, this_node
from onnxplug_ray.sharing import SharedModel

if TYPE_CHECKING:
    from onnxplug import InferenceSession, SessionOptions


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """A session, and what it needs to stay.

    Attributes:
        source: what it was made of: a path, or bytes.
    """

    session: InferenceSession
    source: str | bytes
    _kept: KeptFiles | None
    _artefacts: Artefacts | None

    def once(self, stage: str) -> AbstractContextManager[None]:
        """A context in which is compiled what other nodes need not compile then."""
        return nullcontext() if self._artefacts is None else self._artefacts.once(stage)

    def close(self) -> None:
        """Release all of it."""
        self.session.close()
        if self._kept is not None:
            self._kept.close()


def open_model(
    model: SharedModel | str | os.PathLike[str] | bytes,
    providers: Any,
    policy: Any,
    options: Callable[[], SessionOptions],
) -> OpenedModel:
    """A session of *model* on this node.

    Raises:
        EpNotOnNode: the node has not the EPs that were asked for.
        ModelNotShared: it cannot get the model.
        OnnxplugError: no session can be made for another reason.
    """
    made = with_threads(options)()
    if not isinstance(model, SharedModel):
        source = model if isinstance(model, bytes) else os.fspath(model)
        session = _open(source, made, providers, policy)
        return OpenedModel(session, source, None, None)
    asked = repr((model.digest, providers, str(policy), made.intra_op_num_threads))
    artefacts = Artefacts(model.store, asked)
    kept = model.keep()
    try:
        source = str(kept.folder / model.files[0].name)
        with artefacts.once("session"):
            session = _open(source, made, providers, policy)
    except BaseException:
        kept.close()
        raise
    return OpenedModel(session, source, kept, artefacts)


def with_threads(
    options: Callable[[], SessionOptions],
) -> Callable[[], SessionOptions]:
    """*options* with as many threads as Ray gives this process CPUs, unless they say
    how many."""

    def make() -> SessionOptions:
        made = options()
        if not made.intra_op_num_threads:
            made.intra_op_num_threads = assigned_threads()
        return made

    return make


def _open(
    source: str | bytes, options: SessionOptions, providers: Any, policy: Any
) -> InferenceSession:
    try:
        return onnxplug.InferenceSession(source, options, providers, policy=policy)
    except (PluginError, SelectionError) as error:
        raise ep_not_here(error, providers or policy) from error


def ep_not_here(error: PluginError | SelectionError, asked: Any) -> EpNotOnNode:
    """*error* in words that name this node, and the EP."""
    ep = getattr(error, "plugin", "") or getattr(error, "ep", "") or str(asked)
    node = this_node()
    return EpNotOnNode(f"node {node} has not the EP {ep}: {error}", ep=ep, node=node)


def eps_in_use(session: InferenceSession) -> str:
    """The EPs that run partitions of a session, best first, as a text."""
    names = session.get_providers()
    if len(names) > 1:
        used = {part.ep for part in session.explain().partitions}
        names = [name for name in names if name in used] or names
    return ", ".join(names)
