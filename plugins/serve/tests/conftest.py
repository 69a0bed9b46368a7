"""A server in a thread, and models for it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

try:
    import tritonclient.grpc
    import tritonclient.http

    import onnxplug_serve
except ImportError as error:
    if "serve" in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
        raise
    collect_ignore_glob = ["*"]
    missing = error


class Served:
    """A server that runs in a thread of its own."""

    def __init__(self, server: Any, loop: Any) -> None:
        self.server = server
        self.loop = loop
        self.http = f"127.0.0.1:{server.http_port}"
        self.grpc = f"127.0.0.1:{server.grpc_port}"

    def client(self, protocol: str, **more: Any) -> Any:
        """One of Triton's clients."""
        if protocol == "http":
            return tritonclient.http.InferenceServerClient(self.http, **more)
        return tritonclient.grpc.InferenceServerClient(self.grpc, **more)


@contextmanager
def serving(settings: Any) -> Iterator[Served]:
    """A context in which models are served, at ports that are free; they are loaded."""
    settings = replace(settings, http_port=0, grpc_port=0)
    ready = threading.Event()
    found: list[Any] = []

    async def serve() -> None:
        server = onnxplug_serve.Server(settings)
        found.extend((server, asyncio.get_running_loop()))
        await server.run(ready.set)

    def work() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            found.append(error)
            raise
        finally:
            ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(60), found
    server, loop = found[:2]
    try:
        for _ in range(6000):
            if server.service.repository.is_ready:
                break
            threading.Event().wait(0.01)
        yield Served(server, loop)
    finally:
        loop.call_soon_threadsafe(server.end)
        thread.join(60)
        assert not thread.is_alive()


def save(text: str, path: Path, **weights: Any) -> Path:
    """Write the model that is the *text* of a graph."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]>\n{text}')
    for name, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path


@pytest.fixture(scope="session")
def start() -> Callable[[Any], AbstractContextManager[Served]]:
    """Starts servers, by their settings."""
    return serving


@pytest.fixture(scope="session")
def save_scale() -> Callable[[Path, float], Path]:
    """Writes a model that multiplies ``x`` by a factor to a path."""

    def save_to(path: Path, factor: float) -> Path:
        text = "graph (float[N, 4] x) => (float[N, 4] y) { y = Mul (x, scale) }"
        return save(text, path, scale=np.float32(factor))

    return save_to


@pytest.fixture
def save_model(tmp_path: Path) -> Callable[..., Path]:
    """Writes models to the test's folder."""

    def save_in_folder(text: str, name: str = "model.onnx", **weights: Any) -> Path:
        return save(text, tmp_path / name, **weights)

    return save_in_folder


SCALE = "graph (float[N, 4] x, float scale) => (float[N, 4] y) { y = Mul (x, scale) }"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models: ``scale``; ``layer``, which computes each row by itself;
    ``mean``, which does not; ``every``, of each datatype; ``text``; ``endless``."""
    path = tmp_path_factory.mktemp("models")
    save(SCALE, path / "scale.onnx")
    weights = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    save(
        "graph (float[N, 4] x) => (float[N, 3] y) { z = MatMul (x, w) y = Tanh (z) }",
        path / "layer.onnx",
        w=weights,
    )
    save(
        "graph (float[N, 4] x) => (float[1, 4] y) { y = ReduceMean (x, a) }",
        path / "mean.onnx",
        a=np.array([0]),
    )
    types = (
        "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float double"
    )
    given = ", ".join(
        f"{each}[N, 2] {each}_in" for each in (*types.split(), "bfloat16")
    )
    made = ", ".join(
        f"{each}[N, 2] {each}_out" for each in (*types.split(), "bfloat16")
    )
    nodes = " ".join(
        f"{each}_out = Identity ({each}_in)" for each in (*types.split(), "bfloat16")
    )
    save(f"graph ({given}) => ({made}) {{ {nodes} }}", path / "every.onnx")
    save(
        "graph (string[N] a, string[N] b) => (string[N] c) { c = StringConcat (a, b) }",
        path / "text.onnx",
    )
    save(
        """graph (float[1] x) => (float[1] y) {
            count = Constant <value = int64 {4611686018427387904}> ()
            true = Constant <value = bool {1}> ()
            y = Loop (count, true, x) <body = step (int64 i, bool go, float[1] v)
                => (bool on, float[1] w) { on = Identity (go) w = Add (v, v) }>
        }""",
        path / "endless.onnx",
    )
    return path


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    """All models of the folder, with the default limits."""
    models = {path.stem: path for path in folder.glob("*.onnx")}
    with serving(onnxplug_serve.Settings(models=models, timeout=20)) as found:
        yield found
