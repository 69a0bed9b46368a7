"""The protocol over gRPC."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from onnxplug_serve.datatypes import BYTES, datatype_of_array
from onnxplug_serve.errors import (
    BadRequest,
    Overloaded,
    RequestError,
    TooLarge,
    TooSlow,
    Unauthenticated,
)
from onnxplug_serve.grpc_messages import MESSAGES, PACKAGE
from onnxplug_serve.inference_json import timeout_of
from onnxplug_serve.metrics import OTHER
from onnxplug_serve.requests import InferRequest
from onnxplug_serve.rest import EXTENSIONS
from onnxplug_serve.tensors import (
    check_head,
    from_raw,
    from_scalars,
    memory_of,
    to_raw,
)
from onnxplug_serve.tracing import span

if TYPE_CHECKING:
    from onnxplug_serve.admission import Held
    from onnxplug_serve.service import Service
    from onnxplug_serve.settings import Limits

NAME: Final = f"{PACKAGE}.GRPCInferenceService"

Call = Callable[[Any, Any], Awaitable[Any]]

_CONTENTS: Final[Mapping[str, str]] = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    BYTES: "bytes_contents",
}
"""Which field has the elements of a datatype; others travel as raw bytes only."""

_OPEN: Final = frozenset({"ServerLive", "ServerReady"})
"""Calls that need no token: who watches over the server has none."""


def handler(service: Service) -> grpc.GenericRpcHandler:
    """What answers calls for *service*."""
    calls = _Calls(service)
    reader = _Reader(service.settings.limits)
    answers: dict[str, Call] = {
        "ServerLive": calls.server_live,
        "ServerReady": calls.server_ready,
        "ServerMetadata": calls.server_metadata,
        "ModelReady": calls.model_ready,
        "ModelMetadata": calls.model_metadata,
        "ModelInfer": calls.model_infer,
        "RepositoryIndex": calls.repository_index,
        "RepositoryModelLoad": calls.repository_load,
        "RepositoryModelUnload": calls.repository_unload,
    }
    return grpc.method_handlers_generic_handler(
        NAME,
        {
            # to the client it is no stream; here the message is waited for by our rules
            name: grpc.stream_unary_rpc_method_handler(
                _guarded(service, reader, name, call),
                response_serializer=MESSAGES[f"{name}Response"].SerializeToString,
            )
            for name, call in answers.items()
        },
    )


def _guarded(service: Service, reader: _Reader, name: str, call: Call) -> Call:
    """*call*, which asks for the token, and ends as gRPC has it where it fails."""

    async def guarded(messages: AsyncIterator[bytes], context: Any) -> Any:
        try:
            if service.settings.token and name not in _OPEN:
                _check_token(context, service.settings.token)
            data = await reader.read(messages)
            return await call(_message(name, data), context)
        except RequestError as error:
            await context.abort(getattr(grpc.StatusCode, error.code), error.told)

    return guarded


class _Reader:
    """Reads messages: so many at the same time that they cannot take more memory than
    may be held, as nobody knows how long they are before they are there."""

    def __init__(self, limits: Limits) -> None:
        self._seconds = limits.body_seconds
        at_once = max(limits.held_bytes // limits.request_bytes, 1)
        self._turns = asyncio.Semaphore(at_once)

    async def read(self, messages: AsyncIterator[bytes]) -> bytes:
        """The message of a call.

        Raises:
            TooSlow: it did not come in time.
            Overloaded: others did not.
            BadRequest: there is none.
        """
        has_turn = False
        try:
            async with asyncio.timeout(self._seconds), self._turns:
                has_turn = True
                return await anext(messages)
        except TimeoutError as error:
            if not has_turn:
                raise Overloaded("other messages are being read; ask again") from error
            raise TooSlow(
                f"the message did not come within {self._seconds:g} s"
            ) from error
        except StopAsyncIteration as error:
            raise BadRequest("the call has no message") from error


def _message(name: str, data: bytes) -> Any:
    try:
        return MESSAGES[f"{name}Request"].FromString(data)
    except DecodeError as error:
        raise BadRequest(f"the message is no {name}Request") from error


def _check_token(context: Any, token: str) -> None:
    given = dict(context.invocation_metadata() or ()).get("authorization", "")
    given = given.encode() if isinstance(given, str) else given
    if not hmac.compare_digest(given, f"Bearer {token}".encode()):
        raise Unauthenticated("the call has not the token that is asked for")


class _Calls:
    """Answers calls, one method for each."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._repository = service.repository

    async def server_live(self, *_: Any) -> Any:
        return MESSAGES["ServerLiveResponse"](live=True)

    async def server_ready(self, *_: Any) -> Any:
        return MESSAGES["ServerReadyResponse"](ready=self._repository.is_ready)

    async def server_metadata(self, *_: Any) -> Any:
        return MESSAGES["ServerMetadataResponse"](**self._service.metadata(EXTENSIONS))

    async def model_ready(self, request: Any, _: Any) -> Any:
        try:
            self._repository.find(request.name, request.version)
        except RequestError:
            return MESSAGES["ModelReadyResponse"](ready=False)
        return MESSAGES["ModelReadyResponse"](ready=True)

    async def model_metadata(self, request: Any, _: Any) -> Any:
        found = self._repository.find(request.name, request.version)
        versions = self._repository.versions(found.name)
        return MESSAGES["ModelMetadataResponse"](**found.metadata(), versions=versions)

    async def repository_index(self, request: Any, _: Any) -> Any:
        models = self._repository.index(only_ready=request.ready)
        return MESSAGES["RepositoryIndexResponse"](models=models)

    async def repository_load(self, request: Any, _: Any) -> Any:
        if request.parameters:
            raise BadRequest(
                "models are loaded as they are in the repository; parameters, such as "
                "a configuration or files, are not taken from the network"
            )
        await self._repository.load(request.model_name)
        return MESSAGES["RepositoryModelLoadResponse"]()

    async def repository_unload(self, request: Any, _: Any) -> Any:
        await self._repository.unload(request.model_name)
        return MESSAGES["RepositoryModelUnloadResponse"]()

    async def model_infer(self, request: Any, context: Any) -> Any:
        began = time.monotonic()
        status, name = 500, OTHER
        try:
            found = self._repository.find(request.model_name, request.model_version)
            name = found.name
            headers = {
                key: value
                for key, value in context.invocation_metadata() or ()
                if isinstance(value, str)
            }
            with (
                span("infer", headers, model=name, version=found.version),
                self._service.admission.hold() as held,
                found.in_use(),
            ):
                asked = self._read(request, held, context)
                response = await found.infer(asked)
                held.keep(sum(map(memory_of, response.results.values())))
                answer = _written(response)
            status = 200
            return answer
        except RequestError as error:
            status = error.status
            raise
        except asyncio.CancelledError:
            status = 499
            raise
        finally:
            seconds = time.monotonic() - began
            self._service.metrics.answered(name, "grpc", status, seconds)

    def _read(self, request: Any, held: Held, context: Any) -> InferRequest:
        limits = self._service.settings.limits
        size = request.ByteSize()
        held.grow(size)
        for what in ("inputs", "outputs"):
            count = len(getattr(request, what))
            if count > limits.inputs:
                raise TooLarge(
                    f"there are {count} {what}; expected {limits.inputs} or less"
                )
        names = [each.name for each in request.outputs]
        if len({*names}) != len(names):
            raise BadRequest("an output is asked for twice")
        timeout = timeout_of(_parameter(request.parameters, "timeout"))
        left = context.time_remaining()
        if left is not None:
            timeout = min(timeout or left, left)
        feeds = self._feeds(request)
        held.grow(max(size, sum(map(memory_of, feeds.values()))))
        return InferRequest(feeds, names, request.id, max(timeout, 0.0), held.size)

    def _feeds(self, request: Any) -> dict[str, Any]:
        limits = self._service.settings.limits
        raw: Sequence[bytes] = request.raw_input_contents
        if not raw and request.ByteSize() > limits.json_bytes:
            raise TooLarge(
                f"the tensors have more than {limits.json_bytes} bytes: send them as "
                "raw contents"
            )
        if raw and len(raw) != len(request.inputs):
            raise BadRequest(
                f"there are {len(request.inputs)} inputs, and {len(raw)} raw contents"
            )
        feeds: dict[str, Any] = {}
        for position, each in enumerate(request.inputs):
            told = {
                "name": each.name,
                "datatype": each.datatype,
                "shape": list(each.shape),
            }
            name, kind, shape = check_head(told, limits)
            if name in feeds:
                raise BadRequest(f"input {name!r} is there twice")
            if raw:
                if each.HasField("contents"):
                    raise BadRequest(
                        f"input {name!r} has both contents and raw contents"
                    )
                feeds[name] = from_raw(name, kind, shape, raw[position], limits)
            else:
                feeds[name] = _from_contents(each, shape)
        return feeds


def _from_contents(tensor: Any, shape: Sequence[int]) -> Any:
    field = _CONTENTS.get(tensor.datatype)
    if field is None:
        raise BadRequest(
            f"input {tensor.name!r} is {tensor.datatype}, which travels as raw contents"
        )
    for other, _ in tensor.contents.ListFields():
        if other.name != field:
            raise BadRequest(
                f"input {tensor.name!r} is {tensor.datatype}, and has {other.name}; "
                f"expected {field}"
            )
    scalars = getattr(tensor.contents, field)
    return from_scalars(tensor.name, tensor.datatype, shape, scalars)


def _parameter(parameters: Any, name: str) -> Any:
    if name not in parameters:
        return None
    choice = parameters[name].WhichOneof("parameter_choice")
    return None if choice is None else getattr(parameters[name], choice)


def _written(response: Any) -> Any:
    answer = MESSAGES["ModelInferResponse"](
        model_name=response.model, model_version=response.version, id=response.id
    )
    for name, value in response.parameters.items():
        answer.parameters[name].int64_param = value
    for name, array in response.results.items():
        answer.outputs.add(
            name=name, datatype=datatype_of_array(array), shape=array.shape
        )
        answer.raw_output_contents.append(bytes(to_raw(array)))
    return answer
