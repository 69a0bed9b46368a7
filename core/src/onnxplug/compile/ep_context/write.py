"""Writes compiled models: EPContext nodes, what they stand for, and all other nodes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from onnxplug.authoring.locks import new_lock
from onnxplug.authoring.record import Record
from onnxplug.compatibility import INFO
from onnxplug.compile.ep_context.container import Entry, pack
from onnxplug.compile.ep_context.files import write_whole
from onnxplug.compile.ep_context.node import attributes
from onnxplug.compile.ep_context.rewrite import rewritten
from onnxplug.compile.ep_context.serialise import Entries, infos_by_ep, serialise
from onnxplug.compile.load import keep_apart
from onnxplug.context_data import OrtEpContextData, WriteFunction
from onnxplug.errors import Fail, ModelError, OptionError
from onnxplug.graph import Node
from onnxplug.graph.export import describe, export_graph
from onnxplug.graph.placing import Place, WeightsFile, place
from onnxplug.guard import FAILURES, ep_failure
from onnxplug.interruption import raise_interruption
from onnxplug.operators import EP_CONTEXT
from onnxplug.run.compiled import CompiledUnit

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from onnxplug.compile.model import BuiltModel
    from onnxplug.graph import Model, Weight
    from onnxplug.selection import ChosenEp

Locate: TypeAlias = "Callable[[str, np.ndarray[Any, Any]], Place | None]"
"""Says where a program has put an initializer; ``None``: it goes into the model."""


class ContextSettings(Record):
    """How a compiled model is written.

    Attributes:
        path: the model's file; ``None``: it is given to the caller.
        folder, stem: where files of EPs go, and what their names begin with; from
            *path* unless given.
        embed: what EPs compiled goes into the model.
        prefix: what the names of nodes and entries begin with.
        initializers: the file for initializers, relative to the model; empty: none.
        threshold: bytes above which they go there.
        locate: a program's own place for them.
        write_data: takes the files of EPs in place of the disk.
        share: files of EPs are shared with the models of other sessions.
        stop_sharing: those of later sessions share nothing with this one's.
        if_none: what is written if nothing was serialised.
    """

    path: str | None
    folder: str | None = None
    stem: str = ""
    embed: bool = False
    prefix: str = ""
    initializers: str = ""
    threshold: int = 1024
    locate: Locate | None = None
    write_data: WriteFunction | None = None
    share: bool = False
    stop_sharing: bool = False
    if_none: Literal["model", "nothing", "error"] = "model"


class CompiledModel(Record):
    """What was written.

    Attributes:
        model: the bytes of the model.
        nodes: how many EPContext nodes it has.
    """

    model: bytes
    nodes: int


def write_compiled(
    built: BuiltModel, model: Model, settings: ContextSettings
) -> CompiledModel:
    """Write *built*, the prepared and compiled *model*; notes what is left as nodes.

    Raises:
        EpError, OutOfMemory, LoadCancelled: an EP failed to serialise.
        Fail: a file cannot be written.
        ModelError: the model is beyond protobuf's limit of 2 GiB.
        OptionError: there is no folder for the files.
    """
    entries, left = serialise(built.compiled, built.chosen, settings.prefix)
    built.explanation.not_written = left
    if not entries and settings.if_none == "nothing":
        return CompiledModel(b"", 0)
    if not entries and settings.if_none == "error":
        why = "; ".join(
            dict.fromkeys(f"{each.ep}: {each.reason.detail}" for each in left)
        )
        raise Fail(
            "Unable to compile any nodes. Check that the session EPs support "
            "compilation and can execute at least one subgraph in the model."
            + (f"  ({why})" if why else "")
        )
    writer = _Writer(model, settings, entries, built.chosen)
    writer.check()
    locations = writer.locations()
    proto = writer.model(built, locations)
    try:
        data = proto.SerializeToString()
    except ValueError as error:
        raise ModelError(
            f"the compiled model is beyond protobuf's limit of 2 GiB: {error}; have "
            "ep.context_embed_mode '0', and set "
            "ep.context_model_external_initializers_file_name"
        ) from error
    writer.store(locations)
    if settings.path is not None:
        write_whole(settings.path, [data])
    return CompiledModel(data, len(entries))


class _Writer:
    def __init__(
        self,
        model: Model,
        settings: ContextSettings,
        entries: Entries,
        chosen: Sequence[ChosenEp],
    ) -> None:
        self._model: Final = model
        self._settings: Final = settings
        self._entries: Final = entries
        self._chosen: Final = {ep.name: ep for ep in chosen}
        path = settings.path
        self._folder: Final = settings.folder or (
            None if path is None else os.path.dirname(os.path.abspath(path))
        )
        stem = settings.stem or os.path.splitext(os.path.basename(path or ""))[0]
        self._stem: Final = stem or "model_ctx"

    def check(self) -> None:
        """Refuse a file for initializers that the model could not name, or is in.

        Raises:
            OptionError: it is not beside the model, or is the model.
        """
        folder, self._initializers = os.path.split(self._settings.initializers)
        if folder and os.path.abspath(folder) != self._folder:
            raise OptionError(
                f"the file for initializers is {self._settings.initializers!r}; it has "
                f"to be in the model's folder, {self._folder!r}"
            )
        path = self._settings.path
        if path is not None:
            keep_apart(self._model, "the compiled model", path)
            if self._initializers == os.path.basename(path):
                raise OptionError(
                    f"the file for initializers is {self._initializers!r}, as the "
                    "compiled model; choose another"
                )

    # what EPs compiled

    def locations(self) -> dict[str, str]:
        """Where each entry is to be, by its name."""
        if self._settings.embed:
            return {}
        found = {}
        with _shared_lock:
            for entry in self._entries.values():
                there = self._shared_file(entry) if self._settings.share else None
                found[entry.name] = there or f"{self._stem}_{entry.ep}.bin"
        return found

    def _shared_file(self, entry: Entry) -> str | None:
        """The file in which a session before this one has written an entry."""
        name = _shared.get((self._folder, entry.name))
        if name is None or self._settings.write_data is not None:
            return name
        there = os.path.exists(os.path.join(self._folder or "", name))
        return name if there else None

    def store(self, locations: Mapping[str, str]) -> None:
        """Write the files of all EPs, but for what is in those of other models."""
        files: dict[str, dict[str, Entry]] = {}
        for entry in self._entries.values():
            if entry.name in locations:
                entries = files.setdefault(locations[entry.name], {})
                entries[entry.name] = entry
        with _shared_lock:
            for name, entries in files.items():
                if all(_shared.get((self._folder, key)) == name for key in entries):
                    continue
                for key in [key for key in _shared if key[0] == self._folder]:
                    if _shared[key] == name:  # what was there is written over
                        del _shared[key]
                self._store(name, [*entries.values()])
                if self._settings.share:
                    _shared.update(((self._folder, key), name) for key in entries)
            if self._settings.stop_sharing:
                _shared.clear()

    def _store(self, name: str, entries: Sequence[Entry]) -> None:
        parts = [*pack(entries)]
        if self._settings.write_data is not None:
            content = OrtEpContextData([memoryview(part) for part in parts])
            try:
                self._settings.write_data(name, content)
            except Exception as error:
                raise_interruption(error)
                raise Fail(
                    "the function of set_ep_context_data_write_func failed for "
                    f"{name!r}: {type(error).__name__}: {error}"
                ) from error
            return
        if self._folder is None:
            raise OptionError(
                "a compiled model that is not written to a file has no folder for what "
                "EPs compiled; embed that (ep.context_embed_mode '1', or "
                "embed_compiled_data_into_model=True), or name a folder by "
                "set_ep_context_binary_information"
            )
        self._write(os.path.join(self._folder, name), parts)

    def _write(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        """Write a file beside the model, but over none of the model's own.

        Raises:
            OptionError: it is one.
            Fail: it cannot be written.
        """
        keep_apart(self._model, "a file of the compiled model", path)
        write_whole(path, parts)

    # the model

    def model(self, built: BuiltModel, locations: dict[str, str]) -> onnx.ModelProto:
        """The model, which names what EPs compiled by *locations*."""
        numbers: dict[str, int] = {}

        def stand_in(unit: CompiledUnit) -> Node | None:
            entry = self._entries.get(id(unit))
            if entry is None:
                return None
            number = numbers[entry.ep] = numbers.get(entry.ep, -1) + 1
            return self._node(unit, entry, number, locations)

        graph = rewritten(built.compiled, stand_in)
        settings = self._settings
        outside = settings.initializers or settings.locate is not None
        try:
            exported = export_graph(
                graph,
                weights="external" if outside else "inline",
                inline_up_to=settings.threshold if settings.locate is None else -1,
                ir_version=self._model.ir_version,
                recomputes=True,
            )
        except ModelError as error:
            raise ModelError(
                "the nodes that are not compiled have weights of more than 2 GiB; set "
                "ep.context_model_external_initializers_file_name"
            ) from error
        if outside:
            self._place(exported.model.graph, exported.weights)
        return self._described(exported.model)

    def _described(self, proto: onnx.ModelProto) -> onnx.ModelProto:
        """*proto* with what the model says of itself, and EPs of what they compiled."""
        describe(proto, self._model)
        for entry in [*proto.metadata_props]:
            if entry.key.startswith(INFO):
                proto.metadata_props.remove(entry)
        for ep, info in infos_by_ep(self._entries).items():
            proto.metadata_props.add(key=f"{INFO}{ep}", value=info)
        return proto

    def _node(
        self,
        unit: CompiledUnit,
        entry: Entry,
        number: int,
        locations: dict[str, str],
    ) -> Node:
        ep = self._chosen[entry.ep]
        payload: bytes | str
        if self._settings.embed:
            payload = b"".join(pack([entry]))
        else:
            payload = locations[entry.name]
        said = attributes(
            source=entry.ep,
            partition_name=entry.name,
            main_context=1,
            embed_mode=int(self._settings.embed),
            ep_cache_context=payload,
            ep_sdk_version=_versions(ep),
            hardware_architecture=ep.device,
            onnx_model_filename=os.path.basename(self._model.path or ""),
            notes=f"{len(unit.partition.nodes)} nodes, compiled by onnxplug",
        )
        return Node(
            EP_CONTEXT[1],
            unit.partition.inputs,
            unit.partition.outputs,
            said,
            domain=EP_CONTEXT[0],
            name=f"{self._settings.prefix}{entry.ep}_{number}",
        )

    # initializers

    def _place(self, graph: onnx.GraphProto, weights: Mapping[str, Weight]) -> None:
        """Put the external initializers where they were asked to be."""
        file = WeightsFile(self._initializers)
        locate = self._settings.locate
        if locate is None:
            place(graph, weights, file.add)
        else:
            place(graph, weights, lambda t, content: locate(t.name, _array(t, content)))
        if not file.parts:
            return
        if self._folder is None:
            raise OptionError(
                "a compiled model that is not written to a file has no folder for a "
                "file of initializers; leave that out, or write the model to a file"
            )
        self._write(os.path.join(self._folder, self._initializers), file.parts)


def _array(tensor: onnx.TensorProto, content: np.ndarray[Any, Any]) -> Any:
    import onnx.numpy_helper

    whole = onnx.TensorProto(
        data_type=tensor.data_type, dims=tensor.dims, raw_data=content.tobytes()
    )
    return onnx.numpy_helper.to_array(whole)


def _versions(ep: ChosenEp) -> str:
    engine: dict[str, str] = {}
    try:
        for device in ep.devices:
            engine |= ep.factory.engine_versions(device)
    except FAILURES as error:
        raise ep_failure(ep.name, "engine_versions", error) from error
    return ", ".join(f"{name} {version}" for name, version in engine.items())


_shared: dict[tuple[str | None, str], str] = {}
"""Where sessions that share have written entries: folder and entry to the file."""

_shared_lock: Final = new_lock()
