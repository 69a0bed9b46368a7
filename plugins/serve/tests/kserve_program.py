"""A program with the clients of the public ``kserve`` package, as its users write one;
what it was answered it prints as JSON.

    python kserve_program.py http|grpc ADDRESS [AUTHORITY.pem TOKEN]

It is a process of its own: ``kserve`` and Triton's client for gRPC both describe the
protocol's messages to the whole process, and one of them would fail.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import grpc
import httpx
import numpy as np
from kserve import (
    InferenceGRPCClient,
    InferenceRESTClient,
    InferInput,
    InferRequest,
    RESTConfig,
)
from kserve.protocol.infer_type import RequestedOutput

DTYPES = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}


class Rest:
    """KServe's client over HTTP."""

    def __init__(self, address: str, authority: str | None, token: str) -> None:
        scheme = "https" if authority else "http"
        self._url = f"{scheme}://{address}"
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        config = RESTConfig(protocol="v2", verify=authority or True)
        self._client = InferenceRESTClient(config)

    async def health(self, model: str) -> list[bool]:
        return [
            await self._client.is_server_live(self._url),
            await self._client.is_server_ready(self._url),
            await self._client.is_model_ready(self._url, model, headers=self._headers),
        ]

    async def infer(self, request: InferRequest) -> Any:
        return await self._client.infer(
            self._url, request, request.model_name, headers=dict(self._headers)
        )

    async def close(self) -> None:
        await self._client.close()


class Grpc:
    """KServe's client over gRPC."""

    def __init__(self, address: str, authority: str | None, token: str) -> None:
        self._headers = (("authorization", f"Bearer {token}"),) if token else ()
        self._client = InferenceGRPCClient(
            address, use_ssl=bool(authority), root_certificates=authority
        )

    async def health(self, model: str) -> list[bool]:
        return [
            await self._client.is_server_live(),
            await self._client.is_server_ready(),
            await self._client.is_model_ready(model, headers=self._headers),
        ]

    async def infer(self, request: InferRequest) -> Any:
        return await self._client.infer(request, headers=self._headers)

    async def close(self) -> None:
        await self._client.close()


def _input(name: str, datatype: str, array: Any, *, binary: bool) -> InferInput:
    made = InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def _values(response: Any, name: str) -> Any:
    return response.get_output_by_name(name).as_numpy().tolist()


async def _layer(client: Any, *, binary: bool) -> dict[str, Any]:
    x = np.arange(8, dtype=np.float32).reshape(2, 4) / 8
    request = InferRequest(
        "layer",
        [_input("x", "FP32", x, binary=binary)],
        request_id="42",
        request_outputs=[RequestedOutput("y", {"binary_data": binary})],
    )
    response = await client.infer(request)
    return {"id": response.id, "y": _values(response, "y")}


async def _every(client: Any, *, binary: bool) -> dict[str, Any]:
    inputs, names = [], []
    for datatype, dtype in DTYPES.items():
        name = {"FP16": "float16", "FP32": "float", "FP64": "double"}.get(
            datatype, datatype.lower()
        )
        array = np.array([[1, 0]], dtype)
        # halves travel as raw bytes only, by this client
        raw = binary or datatype == "FP16"
        inputs.append(_input(f"{name}_in", datatype, array, binary=raw))
        names.append(f"{name}_out")
    # which the client has no numpy type for
    last = InferInput("bfloat16_in", [1, 2], "BF16", parameters={"binary_data_size": 4})
    last._raw_data = b"\x80\x3f\0\0"
    wanted = [RequestedOutput(name, {"binary_data": True}) for name in names]
    request = InferRequest("every", [*inputs, last], request_outputs=wanted)
    response = await client.infer(request)
    return {name: _values(response, name) for name in names}


async def _texts(client: Any, *, binary: bool) -> list[str]:
    inputs = [
        _input(name, "BYTES", np.array(texts, object), binary=binary)
        for name, texts in (("a", ["", "ü"]), ("b", ["x", "字"]))
    ]
    wanted = [RequestedOutput("c", {"binary_data": binary})]
    response = await client.infer(InferRequest("text", inputs, request_outputs=wanted))
    found = response.get_output_by_name("c").as_numpy().tolist()
    return [each.decode() if isinstance(each, bytes) else each for each in found]


async def _refused(client: Any, model: str, name: str) -> str:
    x = np.ones((1, 4), np.float32)
    request = InferRequest(model, [_input(name, "FP32", x, binary=True)])
    try:
        await client.infer(request)
    except httpx.HTTPStatusError as error:
        return f"{error.response.status_code}: {error.response.text}"
    except grpc.RpcError as error:
        return f"{error.code()}: {error.details()}"
    return ""


async def main() -> None:
    protocol, address, authority, token = [*sys.argv[1:], None, ""][:4]
    client = {"http": Rest, "grpc": Grpc}[protocol](address, authority, token or "")
    found: dict[str, Any] = {"health": await client.health("layer")}
    for binary in (True, False):
        kind = "binary" if binary else "plain"
        found[f"layer, {kind}"] = await _layer(client, binary=binary)
        if not token:
            found[f"texts, {kind}"] = await _texts(client, binary=binary)
    if not token:
        found["every"] = await _every(client, binary=True)
        found["no model"] = await _refused(client, "nothing", "x")
    found["no input"] = await _refused(client, "layer", "z")
    await client.close()
    print(json.dumps(found))


asyncio.run(main())
