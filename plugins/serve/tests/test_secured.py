"""TLS, tokens, and what comes of one without the other."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import trustme

import onnxplug_serve
from onnxplug_serve.server import CannotUseCertificate

TOKEN = "a secret"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def files(authority: trustme.CA, tmp_path_factory: Any) -> dict[str, Path]:
    """A certificate of this machine's, its key, and whose word is to be taken for it;
    the same of others."""
    folder = tmp_path_factory.mktemp("certificates")
    made = authority.issue_cert("localhost", "127.0.0.1")
    other = trustme.CA().issue_cert("localhost", "127.0.0.1")
    found = {
        name: folder / f"{name}.pem"
        for name in ("certificate", "key", "other", "other_key", "authority")
    }
    made.private_key_pem.write_to_path(found["key"])
    other.private_key_pem.write_to_path(found["other_key"])
    for chain, name in ((made, "certificate"), (other, "other")):
        text = b"".join(each.bytes() for each in chain.cert_chain_pems)
        found[name].write_bytes(text)
    authority.cert_pem.write_to_path(found["authority"])
    return found


@pytest.fixture(scope="module")
def secured(folder: Path, files: dict[str, Path], start: Any) -> Iterator[Any]:
    """A server with TLS and a token."""
    settings = onnxplug_serve.Settings(
        models={"layer": folder / "layer.onnx"},
        certificate=files["certificate"],
        key=files["key"],
        token=TOKEN,
        limits=onnxplug_serve.Limits(body_seconds=1.0),
    )
    with start(settings) as found:
        yield found


def _inputs(module: Any) -> list[Any]:
    x = np.ones((1, 4), np.float32)
    given = module.InferInput("x", list(x.shape), "FP32")
    given.set_data_from_numpy(x)
    return [given]


def _http(secured: Any, authority: Path) -> Any:
    context = ssl.create_default_context(cafile=str(authority))
    return tritonclient.http.InferenceServerClient(
        secured.http, ssl=True, ssl_context_factory=lambda: context
    )


def _grpc(secured: Any, authority: Path) -> Any:
    return tritonclient.grpc.InferenceServerClient(
        secured.grpc, ssl=True, root_certificates=str(authority)
    )


CLIENTS = {
    "http": (tritonclient.http, _http),
    "grpc": (tritonclient.grpc, _grpc),
}


@pytest.mark.parametrize("protocol", CLIENTS)
def test_a_public_client_is_answered(secured, files, protocol: str) -> None:
    module, connect = CLIENTS[protocol]
    client = connect(secured, files["authority"])
    assert client.is_server_ready()  # without the token
    bears = {"authorization": f"Bearer {TOKEN}"}
    found = client.infer("layer", _inputs(module), headers=bears)
    assert found.as_numpy("y").shape == (1, 3)


@pytest.mark.parametrize("protocol", CLIENTS)
@pytest.mark.parametrize(
    "token", [None, "", "Bearer", "Bearer ", "Bearer a", f"Basic {TOKEN}", TOKEN]
)
def test_a_token_that_is_not_the_server_s_is_refused(
    secured, files, protocol: str, token: str | None
) -> None:
    module, connect = CLIENTS[protocol]
    client = connect(secured, files["authority"])
    bears = {} if token is None else {"authorization": token}
    with pytest.raises(tritonclient.utils.InferenceServerException) as found:
        client.infer("layer", _inputs(module), headers=bears)
    assert str(found.value.status()) in ("401", "StatusCode.UNAUTHENTICATED")


@pytest.mark.parametrize("protocol", CLIENTS)
def test_who_trusts_another_authority_does_not_talk(
    secured, files, protocol: str
) -> None:
    _, connect = CLIENTS[protocol]
    client = connect(secured, files["other"])
    with pytest.raises((ssl.SSLError, tritonclient.utils.InferenceServerException)):
        client.is_server_live()


def test_plain_words_to_a_port_with_tls_have_no_answer(secured) -> None:
    for address in (secured.http, secured.grpc):
        host, port = address.split(":")
        with closing(socket.create_connection((host, int(port)), 20)) as connection:
            connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            try:
                answer = connection.recv(1 << 16)
            except ConnectionResetError:
                answer = b""
        assert b"HTTP/1.1 200" not in answer and b"onnxplug" not in answer
    with grpc.insecure_channel(secured.grpc) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        with pytest.raises(grpc.RpcError) as found:
            call(b"", timeout=5)
    assert found.value.code() is grpc.StatusCode.UNAVAILABLE


def test_old_versions_of_tls_are_refused(secured, files) -> None:
    context = ssl.create_default_context(cafile=str(files["authority"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    for address in (secured.http, secured.grpc):
        host, port = address.split(":")
        with (
            closing(socket.create_connection((host, int(port)), 20)) as connection,
            pytest.raises(OSError, match=r"PROTOCOL_VERSION|EOF"),
        ):
            context.wrap_socket(connection, server_hostname="localhost")


def test_tls_to_a_plain_port_has_no_answer(folder, start) -> None:
    models = {"layer": folder / "layer.onnx"}
    context = ssl.create_default_context()
    with start(onnxplug_serve.Settings(models=models)) as served:
        for address in (served.http, served.grpc):
            host, port = address.split(":")
            connection = socket.create_connection((host, int(port)), 20)
            with closing(connection), pytest.raises(OSError):
                context.wrap_socket(connection, server_hostname="localhost")


def test_slow_heads_are_given_up_behind_tls_too(secured, files) -> None:
    context = ssl.create_default_context(cafile=str(files["authority"]))
    host, port = secured.http.split(":")
    plain = socket.create_connection((host, int(port)), 20)
    with closing(context.wrap_socket(plain, server_hostname="localhost")) as connection:
        connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: lo")
        assert b" 408 " in connection.recv(1 << 16)[:20]


@pytest.mark.parametrize("host", ["evil.example", "service.namespace:8000"])
def test_with_a_token_any_name_will_do(secured, files, host: str) -> None:
    context = ssl.create_default_context(cafile=str(files["authority"]))
    address, port = secured.http.split(":")
    connection = http.client.HTTPSConnection(address, int(port), context=context)
    with closing(connection):
        headers = {"host": host, "authorization": f"Bearer {TOKEN}"}
        connection.request("GET", "/v2", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200
        assert json.loads(answer.read())["name"] == "onnxplug"


def _encrypted(key: Path) -> Path:
    from cryptography.hazmat.primitives import serialization as form

    read = form.load_pem_private_key(key.read_bytes(), None)
    path = key.with_name("encrypted.pem")
    path.write_bytes(
        read.private_bytes(
            form.Encoding.PEM,
            form.PrivateFormat.PKCS8,
            form.BestAvailableEncryption(b"word"),
        )
    )
    return path


@pytest.mark.parametrize(
    ("certificate", "key", "said"),
    [
        ("certificate", "other_key", "do not|mismatch"),
        ("missing", "key", "No such file"),
        ("certificate", "missing", "No such file"),
        ("model", "key", "PEM"),
        ("certificate", "certificate", "PEM"),
        ("certificate", "encrypted", "is encrypted"),
    ],
)
def test_files_that_do_not_go_together_are_told(
    folder, files, start, certificate: str, key: str, said: str
) -> None:
    paths = {
        **files,
        "missing": folder / "missing.pem",
        "model": folder / "layer.onnx",
        "encrypted": _encrypted(files["key"]),
    }
    settings = onnxplug_serve.Settings(
        models={"layer": folder / "layer.onnx"},
        certificate=paths[certificate],
        key=paths[key],
    )

    async def serve() -> None:
        await onnxplug_serve.Server(settings).run()

    with pytest.raises(CannotUseCertificate, match=said):
        asyncio.run(serve())
