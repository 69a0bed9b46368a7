"""Models from wherever they are: a path, bytes, a file object, a ``ModelProto``.

Owns: which IR versions and opsets are read.  onnx is not imported, and weights are
not read: they stay ranges of the mapped file until they are asked for.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.files import open_regular
from onnxplug.errors import (
    EmptyModel,
    InvalidModel,
    MalformedModel,
    ModelError,
    ModelForbidden,
    ModelIsFolder,
    ModelNotFound,
    ModelTypeError,
    ModelUnreadable,
    ModelWarning,
    UnsupportedModel,
)
from onnxplug.graph import tags
from onnxplug.graph.contents import Contents
from onnxplug.graph.external import ExternalData
from onnxplug.graph.folder import ModelFolder
from onnxplug.graph.graph import Function, Model
from onnxplug.graph.parse import GraphParser, read_opset_imports
from onnxplug.graph.tensor import read_entry
from onnxplug.graph.wire import Message, signed
from onnxplug.guard import in_words
from onnxplug.interruption import raise_interruption
from onnxplug.warn import warn_user

if TYPE_CHECKING:
    import numpy as np

_NEWEST_IR: Final = 14
_LAST_IR_WITHOUT_OPSETS: Final = 2
_NEWEST_OPSETS: Final = {"": 28, "ai.onnx.ml": 5}

_UNREADABLE: Final[Mapping[int, type[ModelUnreadable]]] = {
    errno.EISDIR: ModelIsFolder,
    errno.EACCES: ModelForbidden,
    errno.EPERM: ModelForbidden,
}


def load_model(
    source: Any,
    *,
    external_data_folder: str | os.PathLike[str] | None = None,
    external_files: Mapping[str, memoryview] | None = None,
    external_arrays: Mapping[str, np.ndarray[Any, Any]] | None = None,
    mapped: bool = True,
    released_only: bool = True,
) -> Model:
    """Read a model.

    Args:
        source: a path (str or path-like), bytes or another buffer, a binary file
            object, or an ``onnx.ModelProto``.
        external_data_folder: what locations of external data are relative to; for a
            path, the model's own folder unless given.
        external_files: contents by location, used instead of files.
        external_arrays: weights by name, used instead of external data.
        mapped: large files are mapped; otherwise all are read, see ``Contents``.
        released_only: a newer opset than those known is an error; otherwise a warning,
            and it is read as the newest known.

    Raises:
        ModelNotFound: there is no file at the path.
        ModelUnreadable: what is there cannot be read, or is no regular file.
        InvalidModel: the source is not a valid model; ``ExternalDataError`` if the
            fault is in its external data.
        UnsupportedModel: it is newer than this onnxplug.
    """
    path = os.fsdecode(source) if isinstance(source, str | os.PathLike) else None
    folder = external_data_folder
    contents = Contents(mapped=mapped)
    if path is None:
        data, described = in_memory(source)
        contents.given(data)
    else:
        data, described = _on_disk(path, contents), repr(path)
        folder = os.path.dirname(path) if folder is None else folder
    beside = ModelFolder(folder, path, files=external_files, contents=contents)
    external = ExternalData(beside, arrays=external_arrays)
    try:
        try:
            return _read_model(data, external, path, beside, released_only)
        finally:
            # first, as what is wrong with the model may come of it
            contents.require_unchanged()
    except ModelError as error:
        raise type(error)(f"cannot load {described}: {error}") from error


def read_metadata(source: str | os.PathLike[str] | memoryview) -> dict[str, str]:
    """The ``metadata_props`` of the model at a path, or in memory.

    Raises:
        ModelNotFound, ModelUnreadable, InvalidModel: as of :func:`load_model`.
    """
    with read_message(source) as message:
        return dict(
            read_entry(message.child(start, end))
            for tag, start, end in message.fields()
            if tag == tags.MODEL_METADATA_PROPS
        )


@contextlib.contextmanager
def read_message(source: str | os.PathLike[str] | memoryview) -> Iterator[Message]:
    """The ``ModelProto`` at a path, or in memory, to be read while it is open.

    Raises:
        ModelNotFound, ModelUnreadable, InvalidModel: as of :func:`load_model`.
    """
    contents = Contents()
    if isinstance(source, memoryview):
        data, described = in_memory(source)
    else:
        path = os.fsdecode(source)
        data, described = _on_disk(path, contents), repr(path)
    try:
        yield Message.whole(data)
    except ModelError as error:
        raise type(error)(f"cannot read {described}: {error}") from error
    finally:
        contents.require_unchanged()


def parse_function(data: bytes) -> Function:
    """The function in a serialized ``FunctionProto``.

    Raises:
        InvalidModel: it is not one.
    """
    message = Message.whole(memoryview(data))
    return GraphParser(ExternalData()).function(message, {"": 1})


def _on_disk(path: str, contents: Contents) -> memoryview:
    where = f"the model at {path!r}"
    try:
        descriptor, status = open_regular(path)
        try:
            return contents.of(path, descriptor, status)
        finally:
            os.close(descriptor)
    except FileNotFoundError as error:
        raise ModelNotFound(
            f"there is no model at {path!r} (in {_working_folder()})"
        ) from error
    except OSError as error:
        kind = _UNREADABLE.get(error.errno or 0, ModelUnreadable)
        if kind is ModelIsFolder:
            raise kind(f"{path!r} is a folder; name the model file in it") from error
        raise kind(f"cannot read {where}: {error.strerror or error}") from error
    except ValueError as error:  # a NUL character, or half of a surrogate pair
        raise ModelUnreadable(f"cannot read {where}: {error}") from error


def _working_folder() -> str:
    try:
        return repr(os.getcwd())
    except OSError:
        return "a working folder that was deleted"


def in_memory(source: Any) -> tuple[memoryview, str]:
    """The bytes of a model that is not a path, and what to call it.

    Raises:
        InvalidModel: *source* has no bytes; ``ModelTypeError`` if nothing like it has.
    """
    name = "bytes" if isinstance(source, memoryview) else type(source).__name__
    kind = f"a model from {name}"
    if hasattr(source, "SerializeToString"):
        try:
            return memoryview(source.SerializeToString()), kind
        except Exception as error:  # whatever this protobuf raises beyond 2 GiB
            raise_interruption(error)
            raise InvalidModel(
                f"{kind} cannot be serialized: {error}; save it with its weights as "
                "external data and load it by its path"
            ) from error
    given = source
    if hasattr(source, "read"):
        source = source.read()
    try:
        view = memoryview(source)
        # weights are views of the bytes, which must therefore be flat and stay as they
        # are
        if not (view.readonly and view.c_contiguous and view.nbytes):
            view = memoryview(view.tobytes())
        return view.cast("B"), kind
    except TypeError as error:
        gives = "" if source is given else f", which gives {in_words(source)}"
        raise ModelTypeError(
            f"a model is given as {in_words(given)}{gives}; expected a path, bytes, a "
            "file opened in binary mode, or an onnx.ModelProto"
        ) from error
    except (ValueError, BufferError) as error:  # it was released, or is of no bytes
        raise_interruption(error)
        raise InvalidModel(f"{kind} has no bytes to be read: {error}") from error


def _read_model(
    data: memoryview,
    external: ExternalData,
    path: str | None,
    folder: ModelFolder,
    released_only: bool,
) -> Model:
    message = Message.whole(data)
    numbers = {tags.MODEL_IR_VERSION: 0, tags.MODEL_MODEL_VERSION: 0}
    text = {
        tags.MODEL_PRODUCER_NAME: "",
        tags.MODEL_PRODUCER_VERSION: "",
        tags.MODEL_DOMAIN: "",
        tags.MODEL_DOC_STRING: "",
    }
    metadata: dict[str, str] = {}
    graphs: list[Message] = []
    opsets: list[Message] = []
    functions: list[Message] = []
    for tag, start, end in message.fields():
        match tag:
            case tags.MODEL_GRAPH:
                graphs.append(message.child(start, end))
            case tags.MODEL_OPSET_IMPORT:
                opsets.append(message.child(start, end))
            case tags.MODEL_FUNCTIONS:
                functions.append(message.child(start, end))
            case tags.MODEL_METADATA_PROPS:
                key, value = read_entry(message.child(start, end))
                metadata[key] = value
            case _ if tag in numbers:
                numbers[tag] = signed(start)
            case _ if tag in text:
                text[tag] = message.text(start, end, errors="replace")
    if len(graphs) != 1:
        kind, none = MalformedModel, ""
        if not graphs:
            kind, none = EmptyModel, "No graph was found in the protobuf: "
        raise kind(
            f"{none}found {len(graphs)} graphs in its {len(data)} bytes, expected one; "
            "is it an ONNX file?"
        )
    ir_version = numbers[tags.MODEL_IR_VERSION]
    opset_imports = read_opset_imports(opsets)
    if not released_only:
        opset_imports = _as_known(opset_imports)
    _require_supported(ir_version, opset_imports)
    if not opset_imports:
        if ir_version > _LAST_IR_WITHOUT_OPSETS:
            raise InvalidModel(
                f"it has IR version {ir_version} and imports no operator set, so that "
                "what its operators mean is unknown; set its opset_import"
            )
        opset_imports = {"": 1}
    parser = GraphParser(external, overridable=ir_version >= 4)
    return Model(
        graph=parser.main_graph(graphs[0], opset_imports),
        ir_version=ir_version,
        functions=_functions(parser, functions, opset_imports),
        path=path,
        producer_name=text[tags.MODEL_PRODUCER_NAME],
        producer_version=text[tags.MODEL_PRODUCER_VERSION],
        domain=text[tags.MODEL_DOMAIN],
        model_version=numbers[tags.MODEL_MODEL_VERSION],
        doc_string=text[tags.MODEL_DOC_STRING],
        metadata=metadata,
        folder=folder,
    )


def _functions(
    parser: GraphParser, messages: list[Message], opset_imports: Mapping[str, int]
) -> dict[tuple[str, str, str], Function]:
    functions: dict[tuple[str, str, str], Function] = {}
    for message in messages:
        function = parser.function(message, opset_imports)
        key = (function.domain, function.name, function.overload)
        if key in functions:
            raise InvalidModel(f"two functions are {':'.join(key)!r}")
        _require_supported(None, function.body.opset_imports)
        functions[key] = function
    return functions


def _as_known(opset_imports: Mapping[str, int]) -> dict[str, int]:
    """The newest known opset in place of those that are newer."""
    known = {
        domain: min(version, _NEWEST_OPSETS.get(domain, version))
        for domain, version in opset_imports.items()
    }
    for domain, version in opset_imports.items():
        if version != known[domain]:
            warn_user(
                f"the model uses opset {version} of domain {domain or 'ai.onnx'!r}, "
                f"and is read as one of opset {known[domain]}, the newest known",
                ModelWarning,
            )
    return known


def _require_supported(
    ir_version: int | None, opset_imports: Mapping[str, int]
) -> None:
    if ir_version is not None and ir_version < 1:
        raise InvalidModel("it does not say its IR version; is it an ONNX file?")
    if ir_version is not None and ir_version > _NEWEST_IR:
        raise UnsupportedModel(
            f"it has IR version {ir_version}, and this onnxplug reads up to "
            f"{_NEWEST_IR}; upgrade onnxplug, or export the model with an older one"
        )
    for domain, newest in _NEWEST_OPSETS.items():
        version = opset_imports.get(domain, 0)
        if version > newest:
            raise UnsupportedModel(
                f"it uses opset {version} of domain {domain or 'ai.onnx'!r}, and this "
                f"onnxplug reads up to {newest}; upgrade onnxplug, or export the model "
                "with an older opset"
            )
