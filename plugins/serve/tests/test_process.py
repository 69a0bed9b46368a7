"""The command, in a process of its own: loaded, swapped, stalled, killed, ended."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

REQUESTS = 20_000
CLIENTS = 32

FACTORS = {"1": 2.0, "2": 3.0}
"""By which a version of the model multiplies."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Command:
    """``onnxplug serve`` in a process.

    Attributes:
        address: of HTTP.
    """

    def __init__(self, *words: Any, port: int = 0) -> None:
        port = port or _free_port()
        self.address = f"127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "onnxplug", "serve", *map(str, words),
                "--port", str(port), "--grpc-port", "none",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip

    def wait_until_ready(self) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            assert self.process.poll() is None, self.process.stdout.read()
            try:
                if self.ask("GET", "/v2/health/ready")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.02)
        raise AssertionError("it was not ready in a minute")

    def ask(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            connection.request(
                method, path, None if body is None else json.dumps(body), headers
            )
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text[:1] in b"{[" else text
        finally:
            connection.close()

    def infer(self, x: Any) -> tuple[int, Any]:
        return self.ask("POST", "/v2/models/scale/infer", _body(x))

    @property
    def memory(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)


def _body(x: Any, **more: Any) -> dict[str, Any]:
    tensor = {
        "name": "x", "datatype": "FP32", "shape": list(x.shape),
        "data": x.reshape(-1).tolist(),
    }  # fmt: skip
    return {"inputs": [tensor], **more}


@contextmanager
def _command(*words: Any, port: int = 0) -> Iterator[Command]:
    command = Command(*words, port=port)
    try:
        command.wait_until_ready()
        yield command
    finally:
        command.process.kill()
        command.process.communicate()


@pytest.fixture
def save_version(tmp_path: Path, save_scale) -> Callable[[str], object]:
    """Writes versions of ``scale``, each at once."""
    folder = tmp_path / "models" / "scale"

    def save(version: str) -> None:
        path = save_scale(folder / "new.onnx", FACTORS[version])
        (folder / version).mkdir()
        path.rename(folder / version / "model.onnx")

    return save


@pytest.fixture
def repository(tmp_path: Path, save_version) -> Path:
    """A folder with the first version of ``scale``."""
    save_version("1")
    return tmp_path / "models"


class _Client(threading.Thread):
    """Asks, one request after the other, and counts what is wrong."""

    def __init__(self, address: str, number: int, count: int) -> None:
        super().__init__()
        self.statuses: Counter[int] = Counter()
        self.versions: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._address = address
        self._number = number
        self._count = count

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=60)
        try:
            self._ask(connection)
        finally:
            connection.close()

    def _ask(self, connection: http.client.HTTPConnection) -> None:
        draw = random.Random(self._number)
        for turn in range(self._count):
            identity = f"{self._number}-{turn}"
            rows = draw.choice((1, 1, 1, 2, 3, 8, 20))
            x = np.float32(self._number * 1000 + turn % 1000) + np.zeros((rows, 4))
            body = json.dumps(_body(x, id=identity))
            try:
                connection.request("POST", "/v2/models/scale/infer", body)
                answer = connection.getresponse()
                told = json.loads(answer.read())
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.wrong.append(f"{identity}: {error!r}")
                connection.close()
                continue
            self.statuses[answer.status] += 1
            if answer.status == 200:
                self._check(identity, x, told)

    def _check(self, identity: str, x: Any, told: Any) -> None:
        version = told["model_version"]
        self.versions[version] += 1
        (output,) = told["outputs"]
        expected = (x * FACTORS[version]).reshape(-1).tolist()
        if told["id"] != identity or output["data"] != expected:
            self.wrong.append(f"{identity}: {told}"[:300])


def test_nothing_is_wrong_lost_or_doubled(repository: Path, save_version) -> None:
    """20,000 requests of 32 clients, the model swapped meanwhile, and clients that
    stall."""
    with _command("--repository", repository) as command:
        for _ in range(50):
            command.infer(np.ones((20, 4), np.float32))
        before = command.memory
        clients = [
            _Client(command.address, number, REQUESTS // CLIENTS)
            for number in range(CLIENTS)
        ]
        host, port = command.address.split(":")
        stalled = socket.create_connection((host, int(port)))
        stalled.sendall(
            b"POST /v2/models/scale/infer HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Length: 1000000\r\n\r\n{"
        )
        for client in clients:
            client.start()
        time.sleep(1.0)
        save_version("2")
        swaps = 0
        while any(client.is_alive() for client in clients):
            status, told = command.ask("POST", "/v2/repository/models/scale/load")
            assert status == 200, told
            swaps += 1
            time.sleep(0.3)
        for client in clients:
            client.join()
        stalled.close()
        after = command.memory
    wrong = [each for client in clients for each in client.wrong]
    assert not wrong, wrong[:5]
    statuses = sum((client.statuses for client in clients), Counter())
    versions = sum((client.versions for client in clients), Counter())
    assert statuses == {200: REQUESTS}
    assert versions["1"] and versions["2"] and swaps > 1
    assert after - before < 100 << 20


def test_unloading_drops_no_request(repository: Path) -> None:
    """Each is answered, by the model or by that it is not there."""
    with _command("--repository", repository) as command:
        clients = [_Client(command.address, number, 150) for number in range(8)]
        for client in clients:
            client.start()
        while any(client.is_alive() for client in clients):
            for what in ("unload", "load"):
                path = f"/v2/repository/models/scale/{what}"
                assert command.ask("POST", path)[0] == 200
                time.sleep(0.05)
        for client in clients:
            client.join()
    wrong = [each for client in clients for each in client.wrong]
    assert not wrong, wrong[:5]
    statuses = sum((client.statuses for client in clients), Counter())
    assert sum(statuses.values()) == 8 * 150
    assert set(statuses) == {200, 503}


def test_overload_is_refused_and_passes(repository: Path) -> None:
    words = ("--repository", repository, "--queue", 2, "--batch", 1)
    x = np.ones((50_000, 4), np.float32)
    with _command(*words) as command:
        statuses: Counter[int] = Counter()

        def ask() -> None:
            statuses[command.infer(x)[0]] += 1

        threads = [threading.Thread(target=ask) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(statuses) <= {200, 429} and statuses[200]
        assert command.infer(x[:1])[0] == 200


def test_what_is_killed_is_ready_again(repository: Path) -> None:
    port = _free_port()
    x = np.ones((1, 4), np.float32)
    with _command("--repository", repository, port=port) as command:
        assert command.infer(x)[0] == 200
        command.process.send_signal(signal.SIGKILL)
        command.process.wait()
    with _command("--repository", repository, port=port) as command:
        status, told = command.infer(x)
    assert status == 200 and told["outputs"][0]["data"] == [2.0] * 4


@pytest.mark.parametrize("signalled", [signal.SIGTERM, signal.SIGINT])
def test_what_was_asked_is_answered_before_it_ends(
    repository: Path, signalled: signal.Signals
) -> None:
    x = np.ones((100_000, 4), np.float32)
    with _command("--repository", repository) as command:
        answers: list[Any] = []
        threads = [
            threading.Thread(target=lambda: answers.append(command.infer(x)[0]))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        command.process.send_signal(signalled)
        for thread in threads:
            thread.join()
        assert command.process.wait(30) == 0
    assert answers and set(answers) <= {200, 503}
    assert 200 in answers


def test_a_token_is_asked_for(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    words = ("--repository", repository, "--token-file", tmp_path / "token")
    x = np.ones((1, 4), np.float32)
    with _command(*words) as command:
        assert command.infer(x)[0] == 401
        path = "/v2/models/scale/infer"
        for given, status in (("Bearer wrong", 401), ("Bearer secret", 200)):
            assert command.ask("POST", path, _body(x), authorization=given)[0] == status
        assert command.ask("GET", "/metrics")[0] == 401
        assert command.ask("GET", "/v2/health/ready")[0] == 200


def test_a_model_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    command = Command(tmp_path / "bad.onnx")
    try:
        end = time.monotonic() + 60
        status = 0
        while status != 503 and time.monotonic() < end:
            time.sleep(0.1)
            try:
                status, told = command.ask("GET", "/v2/models/bad")
            except OSError:
                continue
        assert status == 503 and "not loaded" in told["error"]
        # which waits until the first time that it is loaded is over
        _, loaded = command.ask("POST", "/v2/repository/models/bad/load")
        _, index = command.ask("POST", "/v2/repository/index")
        _, told = command.ask("GET", "/v2/models/bad")
        for text in (told["error"], index[0]["reason"], loaded["error"]):
            assert "damaged" in text and str(tmp_path) not in text
        assert command.ask("GET", "/v2/health/ready")[0] == 503
        assert command.ask("GET", "/v2/health/live")[0] == 200
    finally:
        command.process.terminate()
        assert command.process.wait(30) == 0
        said, _ = command.process.communicate()
    assert "bad is not served" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "there is nothing to serve"),
        (("missing.onnx",), "there is no model at missing.onnx"),
        (("--repository", "nowhere"), "is no folder"),
        (("--certificate", "a.pem"), "nothing to serve"),
        (("--host", "192.0.2.1", "MODEL"), "cannot listen at 192.0.2.1"),
        (
            ("--certificate", "a.pem", "--key", "b.pem", "MODEL"),
            "cannot use the certificate a.pem",
        ),
        (("--device-runs", "-1", "MODEL"), "is not a whole number"),
    ],
)
def test_what_cannot_be_served_is_said(
    repository: Path, words: tuple[str, ...], said: str
) -> None:
    path = str(repository / "scale" / "1" / "model.onnx")
    given = [path if word == "MODEL" else word for word in words]
    found = subprocess.run(
        [sys.executable, "-m", "onnxplug", "serve", *given],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ,
    )
    assert found.returncode in (1, 2)
    assert said in found.stderr
    assert "Traceback" not in found.stderr
