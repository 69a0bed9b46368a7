"""Requests that nobody should send: each has a clear answer, and the server lives."""

from __future__ import annotations

import gzip
import http.client
import itertools
import json
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import grpc
import numpy as np
import pytest

import onnxplug_serve
from onnxplug_serve.grpc_messages import MESSAGES
from onnxplug_serve.grpc_service import NAME

INFER = "/v2/models/layer/infer"
ROW = [1.0, 2.0, 3.0, 4.0]


class Hostile(NamedTuple):
    """A request over HTTP, in words, and the statuses that are clear answers to it."""

    what: str
    body: bytes
    headers: dict[str, str] = {}  # noqa: RUF012 (of a tuple)
    path: str = INFER
    method: str = "POST"
    statuses: tuple[int, ...] = (400,)


def _tensor(**changed: Any) -> dict[str, Any]:
    made = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": ROW, **changed}
    return {key: value for key, value in made.items() if value is not ...}


def _body(*inputs: Any, **more: Any) -> bytes:
    return json.dumps({"inputs": list(inputs), **more}).encode()


ODD = (
    None, True, False, 0, -1, 1, 1.5, -0.0, 2**31, 2**63, 2**64, -(2**63), 10**400,
    1e308, "", "x", "\0", "4", "\ud800", "a" * 5000, [], [[]], [None], {}, {"a": 1},
    [[[[]]]],
)  # fmt: skip
"""What is put where something else is expected."""

DATATYPES = (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "FP64", "BF16", "BYTES", "fp32", "FP32 ", "FLOAT", "FP8",
)  # fmt: skip


def _bodies() -> Iterator[Hostile]:
    """Bodies that are no request."""
    for text in (
        b"", b" ", b"null", b"[]", b"1", b'"x"', b"{", b"{}{}", b"\xff\xfe",
        b"\0" * 100, b"[" * 100_000, b'{"a":' * 50_000, b"NaN", b'{"inputs": NaN}',
        b"\x80" * 9,
        b"{'inputs': []}", b'{"inputs": [}', b"<xml/>", b'\xef\xbb\xbf{"inputs": []}',
    ):  # fmt: skip
        yield Hostile(f"the body {text[:20]!r}", text)
    for odd in ODD:
        for key in ("inputs", "outputs", "parameters", "id"):
            good = {"inputs": [_tensor()]}
            if odd is None and key != "inputs":
                pass
            body = json.dumps({**good, key: odd}).encode()
            yield Hostile(f"{key}: {odd!r:.30}", body, statuses=(200, 400))
    for size in (2000, 100_000):
        yield Hostile(
            f"{size} inputs", _body(*[_tensor(name=f"x{i}") for i in range(size)]),
            statuses=(400, 413),
        )  # fmt: skip
        outputs = [{"name": f"y{i}"} for i in range(size)]
        body = _body(_tensor(), outputs=outputs)
        yield Hostile(f"{size} outputs", body, statuses=(400, 413))


def _tensors() -> Iterator[Hostile]:
    """Tensors that are none, or not the model's."""
    for key, odd in itertools.product(("name", "datatype", "shape", "data"), ODD):
        if (key, odd) == ("name", "x"):
            continue
        yield Hostile(
            f"{key}: {odd!r:.30}",
            json.dumps({"inputs": [_tensor(**{key: odd})]}).encode(),
        )
    for key, odd in itertools.product(("shape", "data"), ODD):
        many = [odd] * 4
        yield Hostile(
            f"{key}: of {odd!r:.30}", _body(_tensor(**{key: many})), statuses=(200, 400)
        )
    for key in ("name", "datatype", "shape", "data"):
        yield Hostile(f"no {key}", _body(_tensor(**{key: ...})))
    for datatype in DATATYPES:
        yield Hostile(f"the datatype {datatype}", _body(_tensor(datatype=datatype)))
    for shape in (
        [4], [1, 1, 4], [4, 1], [2, 4], [1, 5], [0, 4], [-1, 4], [1, -4],
        [2**40, 2**40],
        [2**62, 4], [1, 2**63], [1] * 65, [1] * 10_000, [0] * 64, [1, 4.0], [1, "4"],
        [2**40] * 64,
    ):  # fmt: skip
        yield Hostile(
            f"the shape {shape[:4]}", _body(_tensor(shape=shape)), statuses=(400, 413)
        )
    for name in ("", "y", "w", "X", "x ", "x\0", "../x", "x" * 100_000, "\u202e", "ü"):
        yield Hostile(f"the name {name[:8]!r}", _body(_tensor(name=name)))
    deep: Any = ROW
    for _ in range(400):
        deep = [deep]
    yield Hostile("data of 400 levels", _body(_tensor(data=deep)), statuses=(200, 400))
    yield Hostile("data with holes", _body(_tensor(data=[[1, 2], 3, 4])))
    yield Hostile("data for more", _body(_tensor(data=ROW * 1000)))
    yield Hostile("the same input twice", _body(_tensor(), _tensor()))
    yield Hostile("another input", _body(_tensor(), _tensor(name="w")))
    yield Hostile("no input", _body())
    for number in (1e39, -1e400, 10**60):
        body = json.dumps({"inputs": [_tensor(data=[number] * 4)]}).encode()
        yield Hostile(f"the number {number!r:.12}", body, statuses=(200, 400))


def _binary() -> Iterator[Hostile]:
    """Raw tensors of other sizes than it says."""
    raw = np.ones(4, np.float32).tobytes()
    for size, sent in itertools.product(
        (-1, 0, 1, 15, 16, 17, 32, 2**31, 2**63, 2**80, "16", 16.0, None, [16]),
        (b"", raw[:8], raw, raw * 2),
    ):
        tensor = _tensor(data=..., parameters={"binary_data_size": size})
        head = json.dumps({"inputs": [tensor]}).encode()
        if size == 16 and sent == raw:
            continue
        yield Hostile(
            f"{len(sent)} bytes, said to be {size!r}", head + sent,
            {"inference-header-content-length": str(len(head))},
        )  # fmt: skip
    good = json.dumps(
        {"inputs": [_tensor(data=..., parameters={"binary_data_size": 16})]}
    ).encode()
    for length in (
        "", "-1", "0", "1", str(len(good) - 1), str(len(good) + 1), str(len(good) + 16),
        str(len(good) + 17), "9" * 19, "9" * 5000, "0x10", " 5", "+5", "1e3", "²",
    ):  # fmt: skip
        yield Hostile(
            f"a header of {length[:12]!r} bytes", good + raw,
            {"inference-header-content-length": length.encode().decode("latin-1")},
        )  # fmt: skip
    both = _tensor(parameters={"binary_data_size": 16})
    head = json.dumps({"inputs": [both]}).encode()
    yield Hostile(
        "data twice", head + raw, {"inference-header-content-length": str(len(head))}
    )
    for texts in (b"\1", b"\5\0\0\0abc", b"\xff\xff\xff\xff", b"\1\0\0\0\xff", b""):
        tensor = {
            "name": "a", "datatype": "BYTES", "shape": [1],
            "parameters": {"binary_data_size": len(texts)},
        }  # fmt: skip
        head = json.dumps({"inputs": [tensor]}).encode()
        yield Hostile(
            f"the texts {texts!r}", head + texts,
            {"inference-header-content-length": str(len(head))},
            path="/v2/models/text/infer",
        )  # fmt: skip


def _encodings() -> Iterator[Hostile]:
    """Bodies that are compressed, wrongly or all too well."""
    good = _body(_tensor())
    packed = gzip.compress(good)
    for name, body in (
        ("gzip", good), ("gzip", packed[:-4]), ("gzip", packed + b"more"),
        ("gzip", b""),
        ("gzip", packed[:3]), ("gzip", b"\0" * 100), ("deflate", packed),
        ("deflate", zlib.compress(good)[:-1]), ("deflate", good),
        ("gzip", packed[:10] + bytes(len(packed) - 10)),
    ):  # fmt: skip
        yield Hostile(f"{name} of {body[:8]!r}", body, {"content-encoding": name})
    for name in ("br", "zstd", "compress", "gzip, gzip", "x" * 3000, "identity, br"):
        yield Hostile(
            f"the encoding {name[:12]}",
            good,
            {"content-encoding": name},
            statuses=(415,),
        )
    for size in (100, 1000):
        bomb = zlib.compressobj(9, wbits=31)
        body = (
            b"".join(bomb.compress(bytes(1 << 20)) for _ in range(size)) + bomb.flush()
        )
        yield Hostile(
            f"a bomb of {size} MiB", body, {"content-encoding": "gzip"}, statuses=(413,)
        )


def _paths() -> Iterator[Hostile]:
    """Paths that lead nowhere, and methods for others."""
    good = _body(_tensor())
    for path in (
        "/", "/v1/models/layer:predict", "/v2/models", "/v2/models//infer",
        "/v2/models/..%2f..%2fetc/infer", "/v2/models/layer/versions/infer",
        "/v2/models/layer/versions/%00/infer", "/v2/models/%ff/infer",
        "/v2/models/layer/versions/2/infer", "/v2/models/layer/versions/-1/infer",
        "/v2/models/layer/versions/1%20/infer", "/v2/models/layer/infer/",
        "/v2/models/LAYER/infer", "/v2/models/" + "a" * 5000 + "/infer",
        "/%2e%2e/etc/passwd",
        "/v2/models/layer/generate", "/v2/models/layer/stats", "/v2/logging", "//",
        "/v2/repository/models/..%2fx/load", "/v2/repository/models/nothing/load",
        "/v2/repository/models/nothing/unload", "/v2/systemsharedmemory/status",
        "/v2/models/layer/infer/../../../../etc/passwd",
    ):  # fmt: skip
        yield Hostile(
            f"the path {path[:40]}", good, path=path, statuses=(307, 404, 405)
        )
    for method, path in itertools.product(
        ("GET", "PUT", "DELETE", "PATCH", "TRACE", "OPTIONS"),
        (INFER, "/v2/repository/index"),
    ):
        yield Hostile(
            f"{method} {path}", good, path=path, method=method, statuses=(405,)
        )
    for body in (b"[]", b"{", b'"x"', b"[" * 9000):
        yield Hostile(f"an index of {body[:8]!r}", body, path="/v2/repository/index")
    loaded = json.dumps({"parameters": {"config": "{}"}}).encode()
    yield Hostile("a model from afar", loaded, path="/v2/repository/models/mean/load")


def _parameters() -> Iterator[Hostile]:
    for odd in ODD:
        yield Hostile(
            f"timeout: {odd!r:.30}", _body(_tensor(), parameters={"timeout": odd}),
            statuses=(200, 400, 504),
        )  # fmt: skip
        for key in ("binary_data", "classification"):
            yield Hostile(
                f"{key}: {odd!r:.30}",
                _body(_tensor(), outputs=[{"name": "y", "parameters": {key: odd}}]),
                statuses=(200, 400),
            )
        yield Hostile(f"an output of {odd!r:.30}", _body(_tensor(), outputs=[odd]))
        yield Hostile(
            f"an output called {odd!r:.30}", _body(_tensor(), outputs=[{"name": odd}])
        )


ALL = [
    *_bodies(), *_tensors(), *_binary(), *_encodings(), *_paths(), *_parameters(),
]  # fmt: skip


def _ask(address: str, each: Hostile) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.putrequest(each.method, each.path, skip_accept_encoding=True)
        for name, value in each.headers.items():
            connection.putheader(name, value.encode("latin-1"))
        connection.putheader("content-length", str(len(each.body)))
        # it may be answered before all of it is sent
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.endheaders(each.body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _is_alive(served: Any) -> bool:
    status, body = _ask(served.http, Hostile("", _body(_tensor())))
    return status == 200 and len(json.loads(body)["outputs"][0]["data"]) == 3


def test_there_are_five_hundred_kinds() -> None:
    assert len({(each.what, each.body[:200], each.path) for each in ALL}) >= 500


@pytest.mark.parametrize("start", range(10))
def test_each_is_answered(served, start: int) -> None:
    for each in ALL[start::10]:
        status, body = _ask(served.http, each)
        statuses = (*each.statuses, 400) if 200 in each.statuses else each.statuses
        assert status in statuses, (each.what, status, body[:200])
        if status not in (200, 307):
            assert json.loads(body)["error"], each.what
    assert _is_alive(served)


def _send(address: str, data: bytes, wait: float = 10.0) -> bytes:
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=wait) as connection:
        connection.sendall(data)
        parts = []
        try:
            while part := connection.recv(65536):
                parts.append(part)
        except TimeoutError:
            pass
        return b"".join(parts)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),  # TLS
        b"GET\r\n\r\n",
        b"\0" * 100 + b"\r\n\r\n",
        b"POST " + INFER.encode() + b" HTTP/9.9\r\n\r\n",
        b"POST "
        + INFER.encode()
        + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST "
        + INFER.encode()
        + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST "
        + INFER.encode()
        + b" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked"
        b"\r\n\r\nZZ\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: " + b"a" * 1_000_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 100_000 + b"\r\n",
    ],
)
def test_what_is_no_http_is_refused(served, data: bytes) -> None:
    try:
        answer = _send(served.http, data, wait=1.0)
    except (ConnectionResetError, BrokenPipeError):
        answer = b""  # closed before all of it was sent
    assert not answer or b" 4" in answer[:20], answer[:80]
    assert _is_alive(served)


def test_a_body_of_unknown_length_is_bounded(served) -> None:
    """Chunks that never end are cut off where the limit is."""
    host, port = served.http.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        head = f"POST {INFER} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        try:
            for _ in range(200):
                connection.sendall(chunk)
        except OSError:
            pass
        answer = connection.recv(65536)
    assert b" 413 " in answer[:20]
    assert _is_alive(served)


@pytest.fixture(scope="module")
def small(folder, start) -> Iterator[Any]:
    """A server of tight limits, which are soon reached."""
    limits = onnxplug_serve.Limits(
        request_bytes=1 << 16, held_bytes=1 << 17, queued=4, body_seconds=1.0
    )
    models = {name: folder / f"{name}.onnx" for name in ("layer", "endless")}
    settings = onnxplug_serve.Settings(models=models, limits=limits, timeout=2)
    with start(settings) as found:
        yield found


def test_slow_bodies_are_given_up(small) -> None:
    began = time.monotonic()
    head = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{{"
    answer = _send(small.http, head.encode(), wait=5.0)
    assert b" 408 " in answer[:20]
    assert time.monotonic() - began < 5
    assert _is_alive(small)


def test_what_is_held_is_bounded(small) -> None:
    """Bodies that are promised and do not come are counted before memory is taken."""
    head = f"POST {INFER} HTTP/1.1\r\nContent-Length: 60000\r\n\r\n{{"
    host, port = small.http.split(":")
    held = [socket.create_connection((host, int(port)), timeout=5) for _ in range(3)]
    try:
        for each in held:
            each.sendall(head.encode())
        answers = []
        for each in held[2:]:
            answers.append(each.recv(65536))
        assert any(b" 429 " in each[:20] for each in answers)
        assert any(b"retry-after" in each.lower() for each in answers)
    finally:
        for each in held:
            each.close()
    for _ in range(300):
        if _is_alive(small):
            return
        time.sleep(0.01)
    raise AssertionError("it does not recover")


def test_a_queue_that_is_full_refuses(small) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}
    each = Hostile("endless", _body(tensor), path="/v2/models/endless/infer")
    connections = []
    statuses = []
    for _ in range(8):
        connection = http.client.HTTPConnection(small.http, timeout=30)
        connection.request("POST", each.path, each.body)
        connections.append(connection)
        time.sleep(0.02)
    for connection in connections:
        statuses.append(connection.getresponse().status)
        connection.close()
    assert statuses.count(429) >= 3
    assert set(statuses) <= {429, 504}
    assert _is_alive(small)


def _calls(served: Any, name: str, message: bytes) -> grpc.StatusCode:
    with grpc.insecure_channel(served.grpc) as channel:
        call = channel.unary_unary(f"/{NAME}/{name}", None, None)
        try:
            call(message, timeout=30)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def _infer(**fields: Any) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4]}
    made = {
        "model_name": "layer",
        "inputs": [tensor],
        "raw_input_contents": [bytes(16)],
        **fields,
    }
    return bytes(MESSAGES["ModelInferRequest"](**made).SerializeToString())


CONTENTS = {"fp32_contents": ROW}
GRPC = {
    "no message": b"\xff" * 40,
    "cut off": _infer()[:-3],
    "empty": b"",
    "raw contents too short": _infer(raw_input_contents=[bytes(15)]),
    "raw contents too long": _infer(raw_input_contents=[bytes(17)]),
    "raw contents of two": _infer(raw_input_contents=[bytes(16)] * 2),
    "no contents": _infer(raw_input_contents=[]),
    "negative sizes": _infer(
        inputs=[{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    ),
    "huge sizes": _infer(
        inputs=[{"name": "x", "datatype": "FP32", "shape": [2**62, 2**62]}]
    ),
    "many dimensions": _infer(
        inputs=[{"name": "x", "datatype": "FP32", "shape": [1] * 5000}]
    ),
    "no datatype": _infer(inputs=[{"name": "x", "shape": [1, 4]}]),
    "no name": _infer(inputs=[{"datatype": "FP32", "shape": [1, 4]}]),
    "both contents": _infer(
        inputs=[{
            "name": "x", "datatype": "FP32", "shape": [1, 4], "contents": CONTENTS,
        }]
    ),
    "contents of another type": _infer(
        inputs=[{
            "name": "x", "datatype": "FP32", "shape": [1, 4],
            "contents": {"int_contents": [1, 2, 3, 4]},
        }],
        raw_input_contents=[],
    ),
    "twice": _infer(
        inputs=[{"name": "x", "datatype": "FP32", "shape": [1, 4]}] * 2,
        raw_input_contents=[bytes(16)] * 2,
    ),
    "many inputs": _infer(
        inputs=[{"name": f"x{i}"} for i in range(5000)], raw_input_contents=[]
    ),
    "an output twice": _infer(outputs=[{"name": "y"}] * 2),
    "another output": _infer(outputs=[{"name": "z"}]),
    "a timeout of text": _infer(parameters={"timeout": {"string_param": "soon"}}),
    "no model": _infer(model_name="nothing"),
    "no version": _infer(model_version="x" * 10_000),
    "texts for numbers": _infer(
        inputs=[{"name": "x", "datatype": "BYTES", "shape": [1, 4]}],
        raw_input_contents=[struct.pack("<I", 2**32 - 1)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", GRPC)
def test_each_call_is_answered(served, what: str) -> None:
    code = _calls(served, "ModelInfer", GRPC[what])
    assert code in {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
    assert _calls(served, "ModelInfer", _infer()) is grpc.StatusCode.OK


def test_other_calls_are_not_known(served) -> None:
    assert _calls(served, "SystemSharedMemoryRegister", b"") is (
        grpc.StatusCode.UNIMPLEMENTED
    )


def test_a_message_that_is_too_large_is_refused(small) -> None:
    large = _infer(raw_input_contents=[bytes(1 << 18)])
    assert _calls(small, "ModelInfer", large) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert _calls(small, "ModelInfer", _infer()) is grpc.StatusCode.OK
