"""What a server has to bear from those who mean it ill: each is bounded, in memory and
in time, and who asks besides is answered."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import grpc
import numpy as np
import pytest

import onnxplug_serve
from onnxplug_serve.grpc_messages import MESSAGES
from onnxplug_serve.grpc_service import NAME

BODY_SECONDS = 0.5
INFER = b"POST /v2/models/layer/infer HTTP/1.1\r\n"
HEAD = INFER + b"Host: localhost\r\n"
GOOD = json.dumps(
    {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1.0] * 4}]}
).encode()


@pytest.fixture(scope="module")
def bounded(folder, start) -> Iterator[Any]:
    """A server of tight limits."""
    limits = onnxplug_serve.Limits(
        request_bytes=1 << 20,
        json_bytes=1 << 17,
        json_containers=1000,
        held_bytes=2 << 20,
        connections=16,
        body_seconds=BODY_SECONDS,
        answer_seconds=BODY_SECONDS,
    )
    names = ("layer", "every", "text", "endless")
    models = {name: folder / f"{name}.onnx" for name in names}
    with start(onnxplug_serve.Settings(models=models, limits=limits)) as found:
        yield found


def _connect(address: str) -> Any:
    host, port = address.split(":")
    return closing(socket.create_connection((host, int(port)), timeout=20))


def _rest(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass  # there was more that nobody read
    return b"".join(parts)


def _post(served: Any, path: str, body: bytes, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(served.http, timeout=20)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(connection):
        connection.request("POST", path, body, given)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def _is_alive(served: Any) -> bool:
    return _post(served, "/v2/models/layer/infer", GOOD)[0] == 200


def test_a_head_has_an_end(bounded) -> None:
    with _connect(bounded.http) as connection:
        sent = 0
        try:
            connection.sendall(b"GET /v2 HTTP/1.1\r\nA: ")
            while sent < 64 << 20:
                connection.sendall(b"a" * (1 << 16))
                sent += 1 << 16
        except OSError:
            pass
        answer = _rest(connection)
    assert sent < 16 << 20  # of which the system buffers some
    assert not answer or b" 431 " in answer[:20]
    assert _is_alive(bounded)


@pytest.mark.parametrize(
    "sent",
    [
        b"0\r\n" + b"a: b\r\n" * 60_000,  # trailers
        b"1;" + b"a" * 400_000,  # an extension of a chunk
    ],
)
def test_what_is_sent_beside_a_body_has_an_end(bounded, sent: bytes) -> None:
    with _connect(bounded.http) as connection:
        with suppress(OSError):
            connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + sent)
        answer = _rest(connection)
    assert not answer or b" 4" in answer[:20]
    assert _is_alive(bounded)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", b""),
        (b"\r\n", b"408"),
        (b"GET /v2 HT", b"408"),
        (b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nA: ", b"408"),
        (HEAD + b"Content-Length: 9\r\n\r\n{", b"408"),
        # answered before its body is there, which never comes
        (INFER.replace(b"layer", b"no") + b"Content-Length: 9\r\n\r\n{", b"404"),
    ],
)
def test_who_sends_no_more_is_given_up(bounded, sent: bytes, status: bytes) -> None:
    began = time.monotonic()
    with _connect(bounded.http) as connection:
        connection.sendall(sent)
        answer = _rest(connection)
    assert time.monotonic() - began < BODY_SECONDS + 5
    assert answer[9:12] == status


def test_who_sends_a_byte_now_and_then_is_given_up(bounded) -> None:
    began = time.monotonic()
    with _connect(bounded.http) as connection:
        for byte in b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nA: bcdefghijk":
            try:
                connection.sendall(bytes([byte]))
            except OSError:
                break
            time.sleep(0.05)
        answer = _rest(connection)
    assert time.monotonic() - began < BODY_SECONDS + 5
    assert not answer or b" 408 " in answer[:20]


def test_idle_connections_keep_nobody_out(bounded) -> None:
    held = [_connect(bounded.http) for _ in range(40)]
    try:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            time.sleep(0.05)
            try:
                if _is_alive(bounded):
                    return
            except ValueError:
                continue  # refused in words that are no JSON: there are too many
        raise AssertionError("idle connections keep others out")
    finally:
        for each in held:
            each.thing.close()


def test_an_answer_that_is_not_taken_is_given_up(folder, start) -> None:
    x = np.full((300_000, 4), 0.1, np.float32)
    tensor = {
        "name": "x", "datatype": "FP32", "shape": list(x.shape),
        "parameters": {"binary_data_size": x.nbytes},
    }  # fmt: skip
    head = json.dumps({"inputs": [tensor]}).encode()
    request = (
        HEAD
        + f"Inference-Header-Content-Length: {len(head)}\r\n".encode()
        + f"Content-Length: {len(head) + x.nbytes}\r\n\r\n".encode()
        + head
        + x.tobytes()
    )
    limits = onnxplug_serve.Limits(answer_seconds=2 * BODY_SECONDS)
    models = {"layer": folder / "layer.onnx"}
    settings = onnxplug_serve.Settings(models=models, limits=limits)
    with start(settings) as served, _connect(served.http) as connection:
        held = served.server.service.admission
        connection.sendall(request)
        connection.recv(1)  # its head
        sizes = []
        for _ in range(1000):
            sizes.append(held.held)
            if not sizes[-1]:
                break
            time.sleep(0.01)
        left = _rest(connection)
    # while it is not taken, the numbers as text, which are more than the request has
    assert sizes[0] > 2 * len(request) and sizes[-1] == 0
    assert len(sizes) > 10
    assert len(left) < sizes[0]  # it was not sent to its end


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
        b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        b"Content-Length: 2, 2\r\n\r\n{}",
        b"Content-Length: +2\r\n\r\n{}",
        b"Content-Length: 2\n\n{}",
        b"Content-Length:\r\n 2\r\n\r\n{}",
        b"Content-Length : 2\r\n\r\n{}",
        b"A: b\rContent-Length: 2\r\n\r\n{}",
        b"A: \0\r\nContent-Length: 2\r\n\r\n{}",
        b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n2;a=\nb\r\n{}\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n2\n{}\n0\n\n",
        b"Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n10000000000000002\r\n{}\r\n0\r\n\r\n",
    ],
)
def test_nothing_is_smuggled(bounded, lines: bytes) -> None:
    """What proxies may read otherwise ends the connection, and nothing after it is
    taken for a request."""
    hidden = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with _connect(bounded.http) as connection:
        connection.sendall(HEAD + lines + hidden)
        answer = _rest(connection)
    assert answer[9:12] == b"400"
    assert answer.count(b"HTTP/1.1 ") == 1


def test_names_and_paths_break_no_answer(bounded) -> None:
    with _connect(bounded.http) as connection:
        connection.sendall(
            b"GET /v2/models/a%0d%0aSet-Cookie:b HTTP/1.1\r\nHost: localhost\r\n"
            b"Connection: close\r\n\r\n"
        )
        head, _, body = _rest(connection).partition(b"\r\n\r\n")
    assert head[9:12] == b"404" and b"set-cookie" not in head.lower()
    assert "\\r\\n" in json.loads(body)["error"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:8000"}, 200),
        ({"Host": "127.0.0.1"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:8000"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "localhost", "Origin": "http://localhost"}, 200),
        ({"Host": "localhost", "Origin": "http://localhost:3000"}, 403),
    ],
)
def test_pages_of_other_sites_are_refused(bounded, headers: Any, status: int) -> None:
    found, told = _post(bounded, "/v2/models/layer/infer", GOOD, **headers)
    assert found == status, told


def test_json_is_bounded_before_it_is_read(bounded) -> None:
    for path in ("/v2/models/layer/infer", "/v2/repository/index"):
        for body in (b'{"a": [' + b"[]," * 2000 + b"[]]}", b"1" * (1 << 18)):
            status, told = _post(bounded, path, body)
            assert status == 413, told


@pytest.mark.parametrize(
    ("datatype", "data", "status"),
    [
        ("FP32", "[NaN, Infinity, -Infinity, 1e38]", 200),
        ("FP32", "[1e39, 0, 0, 0]", 400),
        ("FP32", "[1e400, 0, 0, 0]", 400),
        ("FP32", "[0, 0, 0, -1e300]", 400),
        ("FP16", "[65504, 0, 0, 0]", 200),
        ("FP16", "[65536, 0, 0, 0]", 400),
        ("INT32", "[NaN, 0, 0, 0]", 400),
        ("INT32", "[1e3, 0, 0, 0]", 400),
        ("INT8", "[128, 0, 0, 0]", 400),
        ("INT64", f"[{2**63}, 0, 0, 0]", 400),
    ],
)
def test_numbers_that_a_type_has_not_are_refused(
    bounded, datatype: str, data: str, status: int
) -> None:
    name = {"FP32": "float", "FP16": "float16"}.get(datatype, datatype.lower())
    sent = [
        f'{{"name": "{name}_in", "datatype": "{datatype}", "shape": [2, 2], '
        f'"data": {data}}}'
    ]
    for other in (
        "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float double "
        "bfloat16"
    ).split():
        if other == name:
            continue
        kind = {
            "float": "FP32", "double": "FP64", "float16": "FP16", "bfloat16": "BF16",
        }.get(other, other.upper())  # fmt: skip
        one = "true" if other == "bool" else "1"
        sent.append(
            f'{{"name": "{other}_in", "datatype": "{kind}", "shape": [2, 2], '
            f'"data": [{one}, {one}, {one}, {one}]}}'
        )
    body = f'{{"inputs": [{", ".join(sent)}]}}'.encode()
    found, told = _post(bounded, "/v2/models/every/infer", body)
    assert found == status, told
    if found == 200:
        (output,) = [each for each in told["outputs"] if each["name"] == f"{name}_out"]
        np.testing.assert_allclose(output["data"], json.loads(data), rtol=1e-3)


def test_texts_are_bounded_by_what_they_take(bounded) -> None:
    count = 100_000  # of 4 bytes each to send, and of far more to hold
    tensors = [
        {
            "name": name, "datatype": "BYTES", "shape": [count],
            "parameters": {"binary_data_size": 4 * count},
        }
        for name in "ab"
    ]  # fmt: skip
    head = json.dumps({"inputs": tensors}).encode()
    status, told = _post(
        bounded,
        "/v2/models/text/infer",
        head + bytes(8 * count),
        inference_header_content_length=str(len(head)),
    )
    assert status == 413 and "texts" in told["error"]


def _call(served: Any, message: Any, **more: Any) -> grpc.RpcError | None:
    """What the call of ModelInfer fails with."""
    sized = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(served.grpc, options=sized) as channel:
        call = channel.unary_unary(f"/{NAME}/ModelInfer", None, None)
        try:
            call(message.SerializeToString(), timeout=20, **more)
        except grpc.RpcError as error:
            return error
    return None


def _infer(**changed: Any) -> Any:
    made = {
        "model_name": "layer",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4]}],
        "raw_input_contents": [bytes(16)],
        **changed,
    }
    return MESSAGES["ModelInferRequest"](**made)


def test_a_bomb_over_grpc_is_refused(bounded) -> None:
    bomb = _infer(raw_input_contents=[bytes(256 << 20)])
    error = _call(bounded, bomb, compression=grpc.Compression.Gzip)
    assert error is not None
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert _call(bounded, _infer()) is None


def test_elements_over_grpc_are_bounded(bounded) -> None:
    contents = {"fp32_contents": [0.0] * 100_000}
    tensor = {"name": "x", "datatype": "FP32", "shape": [25_000, 4]}
    large = _infer(inputs=[{**tensor, "contents": contents}], raw_input_contents=[])
    error = _call(bounded, large)
    assert error is not None and "raw contents" in error.details()


@pytest.mark.parametrize("size", [100, 20_000, 500_000])
def test_long_names_do_not_break_what_is_told(bounded, size: int) -> None:
    name = "x" * size
    tensor = {"name": name, "datatype": "FP32", "shape": [1, 4]}
    error = _call(bounded, _infer(inputs=[tensor]))
    assert error is not None
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details().startswith("the model has no input 'xxx")


def test_large_metadata_are_refused(bounded) -> None:
    error = _call(bounded, _infer(), metadata=[("a", "b" * 1_000_000)])
    assert error is not None
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert _call(bounded, _infer()) is None


def _silent() -> Iterator[bytes]:
    """Messages that do not come."""
    time.sleep(10 * BODY_SECONDS)
    yield b""


def test_messages_that_do_not_come_are_given_up(bounded) -> None:
    """More calls than can be read at once begin, and say nothing."""
    with grpc.insecure_channel(bounded.grpc) as channel:
        begun = channel.stream_unary(f"/{NAME}/ModelInfer", None, None)
        calls = [begun.future(_silent(), timeout=20) for _ in range(5)]
        began = time.monotonic()
        codes = {call.code() for call in calls}
        assert time.monotonic() - began < 8 * BODY_SECONDS
    assert codes <= {
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
    assert _call(bounded, _infer()) is None


def test_a_call_without_a_message_is_told(bounded) -> None:
    with grpc.insecure_channel(bounded.grpc) as channel:
        empty = channel.stream_unary(f"/{NAME}/ModelInfer", None, None)
        with pytest.raises(grpc.RpcError) as found:
            empty(iter(()), timeout=20)
    assert found.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_deadline_is_kept_behind_a_longer_run(bounded, protocol: str) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}
    body = {"inputs": [tensor], "parameters": {"timeout": 3_000_000}}
    path = "/v2/models/endless/infer"
    with closing(http.client.HTTPConnection(bounded.http, timeout=20)) as first:
        first.request("POST", path, json.dumps(body))
        time.sleep(0.2)
        began = time.monotonic()
        if protocol == "http":
            body["parameters"] = {"timeout": 200_000}
            assert _post(bounded, path, json.dumps(body).encode())[0] == 504
        else:
            endless = _infer(
                model_name="endless",
                inputs=[{"name": "x", "datatype": "FP32", "shape": [1]}],
                raw_input_contents=[bytes(4)],
                parameters={"timeout": {"int64_param": 200_000}},
            )
            error = _call(bounded, endless)
            assert error is not None
            assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert time.monotonic() - began < 2
        assert first.getresponse().status == 504


def _runs(served: Any, model: str) -> float:
    with closing(http.client.HTTPConnection(served.http, timeout=20)) as connection:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    series = f'onnxplug_run_seconds_count{{model="{model}",version="1"}}'
    found = [line for line in text.splitlines() if line.startswith(series)]
    return float(found[0].split()[-1])


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_run_that_nobody_waits_for_is_cancelled(folder, start, protocol: str) -> None:
    models = {"endless": folder / "endless.onnx"}
    with start(onnxplug_serve.Settings(models=models, drain=1)) as served:
        if protocol == "http":
            tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}
            body = json.dumps({"inputs": [tensor]})
            connection = http.client.HTTPConnection(served.http, timeout=20)
            connection.request("POST", "/v2/models/endless/infer", body)
            time.sleep(0.3)
            connection.close()
        else:
            message = _infer(
                model_name="endless",
                inputs=[{"name": "x", "datatype": "FP32", "shape": [1]}],
                raw_input_contents=[bytes(4)],
            )
            with grpc.insecure_channel(served.grpc) as channel:
                call = channel.unary_unary(f"/{NAME}/ModelInfer", None, None)
                future = call.future(message.SerializeToString(), timeout=20)
                time.sleep(0.3)
                future.cancel()
        end = time.monotonic() + 20
        while not _runs(served, "endless") and time.monotonic() < end:
            time.sleep(0.05)
        assert _runs(served, "endless") == 1


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_what_runs_when_the_server_ends_is_answered(
    folder, start, protocol: str
) -> None:
    """Its own deadline ends it, and not the server."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1]}
    with ExitStack() as clients:
        models = {"endless": folder / "endless.onnx"}
        with start(onnxplug_serve.Settings(models=models, drain=20)) as served:
            if protocol == "http":
                connection = http.client.HTTPConnection(served.http, timeout=20)
                clients.callback(connection.close)
                body = {
                    "inputs": [{**tensor, "data": [1.0]}],
                    "parameters": {"timeout": 1_500_000},
                }
                path = "/v2/models/endless/infer"
                connection.request("POST", path, json.dumps(body))
            else:
                channel = clients.enter_context(grpc.insecure_channel(served.grpc))
                call = channel.unary_unary(f"/{NAME}/ModelInfer", None, None)
                message = _infer(
                    model_name="endless",
                    inputs=[tensor],
                    raw_input_contents=[bytes(4)],
                    parameters={"timeout": {"int64_param": 1_500_000}},
                )
                future = call.future(message.SerializeToString(), timeout=20)
            time.sleep(0.5)
        if protocol == "http":
            assert connection.getresponse().status == 504
        else:
            assert future.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert "longer than" in future.details()
