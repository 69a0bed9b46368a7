"""The protocol's messages for gRPC, from their names and numbers.

They are those of the package ``inference`` of the `Open Inference Protocol
<https://github.com/kserve/open-inference-protocol>`_, and of its extension for model
repositories.  They are in a pool of their own, as a client's may be in the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

PACKAGE: Final = "inference"

_Field = descriptor_pb2.FieldDescriptorProto

_KINDS: Final[Mapping[str, int]] = {
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "double": _Field.TYPE_DOUBLE,
    "float": _Field.TYPE_FLOAT,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "string": _Field.TYPE_STRING,
    "uint32": _Field.TYPE_UINT32,
    "uint64": _Field.TYPE_UINT64,
}

_TENSOR: Final = (
    "1 string name",
    "2 string datatype",
    "3 repeated int64 shape",
)
_PARAMETERS: Final = "map InferParameter parameters"
_REPOSITORY: Final = (
    "1 string repository_name",
    "2 string model_name",
    "3 map ModelRepositoryParameter parameters",
)

_MESSAGES: Final[Mapping[str, Sequence[str]]] = {
    "ServerLiveRequest": (),
    "ServerLiveResponse": ("1 bool live",),
    "ServerReadyRequest": (),
    "ServerReadyResponse": ("1 bool ready",),
    "ModelReadyRequest": ("1 string name", "2 string version"),
    "ModelReadyResponse": ("1 bool ready",),
    "ServerMetadataRequest": (),
    "ServerMetadataResponse": (
        "1 string name",
        "2 string version",
        "3 repeated string extensions",
    ),
    "ModelMetadataRequest": ("1 string name", "2 string version"),
    "ModelMetadataResponse": (
        "1 string name",
        "2 repeated string versions",
        "3 string platform",
        "4 repeated ModelMetadataResponse.TensorMetadata inputs",
        "5 repeated ModelMetadataResponse.TensorMetadata outputs",
    ),
    "ModelMetadataResponse.TensorMetadata": _TENSOR,
    "ModelInferRequest": (
        "1 string model_name",
        "2 string model_version",
        "3 string id",
        f"4 {_PARAMETERS}",
        "5 repeated ModelInferRequest.InferInputTensor inputs",
        "6 repeated ModelInferRequest.InferRequestedOutputTensor outputs",
        "7 repeated bytes raw_input_contents",
    ),
    "ModelInferRequest.InferInputTensor": (
        *_TENSOR,
        f"4 {_PARAMETERS}",
        "5 InferTensorContents contents",
    ),
    "ModelInferRequest.InferRequestedOutputTensor": (
        "1 string name",
        f"2 {_PARAMETERS}",
    ),
    "ModelInferResponse": (
        "1 string model_name",
        "2 string model_version",
        "3 string id",
        f"4 {_PARAMETERS}",
        "5 repeated ModelInferResponse.InferOutputTensor outputs",
        "6 repeated bytes raw_output_contents",
    ),
    "ModelInferResponse.InferOutputTensor": (
        *_TENSOR,
        f"4 {_PARAMETERS}",
        "5 InferTensorContents contents",
    ),
    "InferParameter": (
        "1 choice bool bool_param",
        "2 choice int64 int64_param",
        "3 choice string string_param",
        "4 choice double double_param",
        "5 choice uint64 uint64_param",
    ),
    "InferTensorContents": (
        "1 repeated bool bool_contents",
        "2 repeated int32 int_contents",
        "3 repeated int64 int64_contents",
        "4 repeated uint32 uint_contents",
        "5 repeated uint64 uint64_contents",
        "6 repeated float fp32_contents",
        "7 repeated double fp64_contents",
        "8 repeated bytes bytes_contents",
    ),
    "ModelRepositoryParameter": (
        "1 choice bool bool_param",
        "2 choice int64 int64_param",
        "3 choice string string_param",
        "4 choice bytes bytes_param",
    ),
    "RepositoryIndexRequest": ("1 string repository_name", "2 bool ready"),
    "RepositoryIndexResponse": (
        "1 repeated RepositoryIndexResponse.ModelIndex models",
    ),
    "RepositoryIndexResponse.ModelIndex": (
        "1 string name",
        "2 string version",
        "3 string state",
        "4 string reason",
    ),
    "RepositoryModelLoadRequest": _REPOSITORY,
    "RepositoryModelLoadResponse": (),
    "RepositoryModelUnloadRequest": _REPOSITORY,
    "RepositoryModelUnloadResponse": (),
}
"""Fields as ``NUMBER [repeated|map|choice] TYPE NAME``; maps are from strings, and what
is a choice is in the one ``oneof`` of its message."""


def _describe() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="onnxplug_serve/open_inference.proto", package=PACKAGE, syntax="proto3"
    )
    described: dict[str, Any] = {}
    for name, fields in _MESSAGES.items():
        outer, _, inner = name.rpartition(".")
        message = (
            described[outer].nested_type.add() if outer else file.message_type.add()
        )
        message.name = inner
        described[name] = message
        for text in fields:
            _add_field(message, name, text.split())
    return file


def _add_field(message: Any, full_name: str, words: Sequence[str]) -> None:
    number, *kinds, name = words
    field = message.field.add(name=name, number=int(number))
    field.label = _Field.LABEL_OPTIONAL
    if kinds[0] == "choice":
        if not message.oneof_decl:
            message.oneof_decl.add(name="parameter_choice")
        field.oneof_index = 0
    elif kinds[0] in ("repeated", "map"):
        field.label = _Field.LABEL_REPEATED
    if kinds[0] != "map":
        _set_kind(field, kinds[-1])
        return
    entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
    entry.options.map_entry = True
    key = entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL)
    _set_kind(key, "string")
    value = entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL)
    _set_kind(value, kinds[-1])
    _set_kind(field, f"{full_name}.{entry.name}")


def _set_kind(field: Any, kind: str) -> None:
    if kind in _KINDS:
        field.type = _KINDS[kind]
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"


def _classes() -> Iterator[tuple[str, Any]]:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_describe())
    for name in _MESSAGES:
        found = pool.FindMessageTypeByName(f"{PACKAGE}.{name}")
        yield name, message_factory.GetMessageClass(found)


MESSAGES: Final[Mapping[str, Any]] = dict(_classes())
"""The classes of messages, by name within the package."""
