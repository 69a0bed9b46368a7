"""Models that travel to each node once, as files that all sessions there map."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from onnxplug.authoring.files import open_regular
from onnxplug.compile.ep_context.node import ContextNode
from onnxplug.errors import InvalidArgument, InvalidModel, ModelTypeError
from onnxplug.graph.load import load_model
from onnxplug_ray.errors import ModelNotShared
from onnxplug_ray.kept_files import KeptFiles
from onnxplug_ray.node import this_node
from onnxplug_ray.store import Store

CHUNK: Final = 64 << 20
"""Bytes of a file that travel as one object."""

NAMESPACE: Final = "onnxplug"
"""Ray's namespace of stores that have a name."""

SECONDS: Final = 600.0
"""That a node waits at most for a chunk, or for a process beside that writes it."""

_IN_MEMORY: Final = "model.onnx"


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file of a model.

    Attributes:
        name: its path relative to the model's folder, with ``/``.
        size: in bytes.
        digest: SHA-256, in hexadecimal digits.
        chunks: the numbers of its chunks in the store.
    """

    name: str
    size: int
    digest: str
    chunks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SharedModel:
    """A model in Ray's object store, made by :func:`share`; it can be sent anywhere.

    Attributes:
        files: the model's own first, then those of its weights, and what EPs compiled.
        store: the actor that keeps it.
    """

    files: tuple[SharedFile, ...]
    store: Any

    @property
    def digest(self) -> str:
        """What tells it from every other, in hexadecimal digits."""
        told = "\n".join(f"{each.name} {each.digest}" for each in self.files)
        return hashlib.sha256(told.encode()).hexdigest()

    def keep(self) -> KeptFiles:
        """Its files on this node, until what is returned is closed.  The first process
        of a node gets them, those beside it wait for that.

        Raises:
            ModelNotShared: the store is gone, or this node cannot keep them.
        """
        kept = KeptFiles(self.digest, SECONDS)
        try:
            kept.fill(self._write)
        except BaseException:
            kept.close()
            raise
        return kept

    def _write(self, folder: Path) -> None:
        for each in self.files:
            path = folder / each.name
            path.parent.mkdir(parents=True, exist_ok=True)
            digest = hashlib.sha256()
            with open(path, "xb") as file:
                for number in each.chunks:
                    chunk = self._chunk(number)
                    digest.update(chunk)
                    file.write(chunk)
            if digest.hexdigest() != each.digest:
                raise ModelNotShared(
                    f"file {each.name!r} of the shared model came to node "
                    f"{this_node()} with other bytes than it was shared with; share "
                    "it again"
                )

    def _chunk(self, number: int) -> Any:
        try:
            (reference,) = ray.get(self.store.chunk.remote(number), timeout=SECONDS)
            return memoryview(ray.get(reference, timeout=SECONDS))
        except ray.exceptions.RayError as error:
            raise ModelNotShared(
                f"node {this_node()} cannot get a shared model: its store is gone, or "
                f"not reached: {error}; share it again, and keep what share() returns, "
                "or name it"
            ) from error

    def drop(self) -> None:
        """End the store: no other node gets the model.  What nodes have they keep."""
        ray.kill(self.store)


def share(model: Any, *, name: str | None = None) -> SharedModel:
    """Put a model into Ray's object store, with the files that it needs beside it.

    Args:
        model: a path, the model's bytes, or an ``onnx.ModelProto``.
        name: keeps the store when the program ends, until :meth:`SharedModel.drop`, as
            a deployment needs it that is to outlive the program.  By default it
            ends with what is returned and its copies.

    Raises:
        ModelError: the model cannot be read, or its files change meanwhile.
        InvalidArgument: there is a store of that name.
    """
    options: dict[str, Any] = {"num_cpus": 0}
    if ray.is_initialized():
        here = ray.get_runtime_context().get_node_id()
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(here, soft=True)
    if name is not None:
        options |= {"name": name, "namespace": NAMESPACE, "lifetime": "detached"}
    sources = dict(_sources(model))
    try:
        store = ray.remote(Store).options(**options).remote()
    except ValueError as error:
        raise InvalidArgument(
            f"there is a shared model called {name!r} already; drop it, or choose "
            f"another name: {error}"
        ) from error
    try:
        files = tuple(_shared(file, source, store) for file, source in sources.items())
    except BaseException:
        ray.kill(store)
        raise
    return SharedModel(files, store)


def _sources(model: Any) -> Iterator[tuple[str, str | bytes]]:
    """The files of *model*: name, and path or content; its own first."""
    if isinstance(model, str | os.PathLike):
        yield from _files(os.fspath(model))
    elif isinstance(model, bytes):
        load_model(model)
        yield _IN_MEMORY, model
    elif hasattr(model, "SerializeToString"):
        load_model(model)
        yield _IN_MEMORY, model.SerializeToString()
    else:
        raise ModelTypeError(
            f"the model is a {type(model).__name__}; expected a path, bytes, or an "
            "onnx.ModelProto"
        )


def _files(path: str) -> Iterator[tuple[str, str]]:
    loaded = load_model(path)
    path = os.path.abspath(path)
    folder, own = os.path.split(path)
    yield own, path
    beside = {
        os.path.relpath(name, folder)
        for name in loaded.files
        if os.path.isabs(name) and name.startswith(os.path.join(folder, ""))
    }
    beside |= set(_compiled(loaded.graph))
    beside.discard(own)
    for name in sorted(beside):
        yield name.replace(os.sep, "/"), os.path.join(folder, name)


def _compiled(graph: Any) -> Iterator[str]:
    """The files of what EPs compiled, relative to the model."""
    for node in graph.nodes:
        if node.op_type == "EPContext" and node.domain == "com.microsoft":
            said = ContextNode.read(node)
            if said.is_main and isinstance(said.payload, str):
                if os.path.isabs(said.payload) or ".." in Path(said.payload).parts:
                    raise InvalidModel(
                        f"{said.in_words} names the file {said.payload!r}, which is "
                        "not in the model's folder"
                    )
                yield said.payload
        for body in node.subgraphs.values():
            yield from _compiled(body)


def _shared(name: str, source: str | bytes, store: Any) -> SharedFile:
    digest = hashlib.sha256()
    chunks = []
    size = 0
    for chunk in _chunks(source):
        digest.update(chunk)
        size += len(chunk)
        chunks.append(ray.get(store.add.remote(np.frombuffer(chunk, np.uint8))))
    return SharedFile(name, size, digest.hexdigest(), tuple(chunks))


def _chunks(source: str | bytes) -> Iterator[bytes]:
    if isinstance(source, bytes):
        for at in range(0, len(source), CHUNK):
            yield source[at : at + CHUNK]
        return
    descriptor, before = open_regular(source)
    with os.fdopen(descriptor, "rb") as file:
        yield from iter(lambda: _read(file), b"")
        after = os.fstat(file.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise InvalidModel(
            f"{source!r} was written to while it was read; share it anew"
        )


def _read(file: BinaryIO) -> bytes:
    return file.read(CHUNK)
