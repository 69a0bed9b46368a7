"""Sessions that begin as an earlier process left them, in programs for ONNX Runtime,
and in those that look at plugins or register some."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
import onnxplug.errors
import onnxplug_onnxruntime as drop_in
from onnxplug import plugins
from onnxplug.authoring import files
from onnxplug.plugins import registry
from onnxplug.search_path import surroundings
from onnxplug.selection import ProviderRequest
from onnxplug.selection.defaults import DefaultProviders
from onnxplug.session import start
from onnxplug.session.start.runner import StartRunner
from onnxplug_testing.simulated import SimulatedFactory

MODEL = """
<ir_version: 10, opset_import: ["": 21]>
kept (float[n, 40] x) => (float[n, 40] y) { s = Add (x, x)  y = Relu (s) }
"""

X = np.random.default_rng(0).standard_normal((3, 40), np.float32)

defaults = importlib.import_module("onnxplug.selection.defaults")


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Sessions are kept in this file, as if each were the first of its process."""
    monkeypatch.setenv("ONNXPLUG_CPU_KEEP_PLANS", "1")
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(start, "_around", surroundings)
    monkeypatch.setattr(files, "_TICK", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return path


def run(session: onnxplug.InferenceSession, x: Any = X) -> Any:
    (y,) = session.run(None, {"x": x})
    return y


def begins(session: onnxplug.InferenceSession) -> bool:
    """Whether the model has not been opened."""
    return isinstance(session._runner, StartRunner)


def begun(path: Path) -> onnxplug.InferenceSession:
    """A session that begins as another one was left."""
    run(onnxplug.InferenceSession(path))
    session = onnxplug.InferenceSession(path)
    assert begins(session)
    return session


LOOKS_FIRST = """
import sys, numpy, onnxplug
from onnxplug.authoring import files
from onnxplug.errors import LibraryInUse
files._TICK = 0  # believes in files that were written a moment ago
onnxplug.get_available_providers()
session = onnxplug.InferenceSession(sys.argv[1])
session.run(None, {"x": numpy.zeros((3, 40), numpy.float32)})
print(type(session._runner).__name__)
onnxplug.register_ep_library("again", "CPUExecutionProvider")
try:
    onnxplug.unregister_ep_library("again")
except LibraryInUse:
    session.close()
    onnxplug.unregister_ep_library("again")
    print("was in use")
onnxplug.InferenceSession(sys.argv[1])
print("onnxplug.graph.load" in sys.modules)  # as something was registered
"""


def test_a_program_may_look_at_plugins_first(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # one that cannot be loaded here would have models opened
    monkeypatch.setenv("ONNXPLUG_PLUGINS", "cpu")
    for runner in ("ModelRunner", "StartRunner"):
        done = subprocess.run(
            [sys.executable, "-c", LOOKS_FIRST, str(path)],
            check=True,
            capture_output=True,
            text=True,
        )
        assert done.stdout.split() == [runner, "was", "in", "use", "True"]


def test_plugins_know_of_sessions_that_began(path: Path) -> None:
    def is_known() -> bool:
        return session in registry.table.sessions("CPUExecutionProvider")

    session = begun(path)
    assert is_known()
    session.close()
    assert not is_known()
    session.explain()
    assert not is_known()
    session = begun(path)
    session.explain()
    assert is_known()
    session.close()
    assert not is_known()
    session = begun(path)
    session.set_providers(["CPUExecutionProvider"])
    assert is_known()
    session.close()
    assert not is_known()


def test_only_the_first_model_of_a_process_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    own = DefaultProviders()
    monkeypatch.setattr(defaults, "defaults", own)
    monkeypatch.setattr(plugins, "registry", plugins.PluginRegistry())
    assert start._around() == surroundings() is not None
    own.set([ProviderRequest("CPUExecutionProvider")])
    assert start._around() is None
    own.set([])
    assert start._around() == surroundings() is not None
    own.take()
    assert start._around() is None
    monkeypatch.setattr(defaults, "defaults", DefaultProviders())
    plugins.registry.add(SimulatedFactory())
    assert start._around() is None


def test_the_drop_in_begins_as_it_was_left(path: Path) -> None:
    given: Any = {"providers": [("CPUExecutionProvider", {"compile": True})]}
    first = drop_in.InferenceSession(path, **given)
    y = run(first)
    assert not begins(first)
    session = drop_in.InferenceSession(path, **given)
    assert np.array_equal(run(session), y)
    assert begins(session)
    assert session.get_providers() == first.get_providers()
    assert session.get_inputs() == first.get_inputs()
    found = []
    for each in (session, first):
        with pytest.raises(onnxplug.errors.InputError) as caught:
            each.run(None, {"x": X[:, :3]})
        found.append(str(caught.value))
    assert found[0] == found[1]
    assert np.array_equal(run(pickle.loads(pickle.dumps(session))), y)
    for options in ({"compile": 1}, {"compile": False}):
        other = drop_in.InferenceSession(
            path, providers=[("CPUExecutionProvider", options)]
        )
        assert not begins(other)
    assert not begins(onnxplug.InferenceSession(path, **given))


def test_options_that_a_program_derives_are_not_kept(path: Path) -> None:
    class Own(drop_in.SessionOptions):  # type: ignore[misc]
        pass

    for _ in range(2):
        assert not begins(drop_in.InferenceSession(path, Own()))


def test_who_is_told_of_options_without_effect_is_told_each_time(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def make() -> Any:
        options = {"arena_extend_strategy": "kSameAsRequested"}
        return drop_in.InferenceSession(
            path, providers=[("CPUExecutionProvider", options)]
        )

    run(make())
    with caplog.at_level("DEBUG", "onnxplug.options"):
        assert not begins(make())
    assert "arena_extend_strategy" in caplog.text
    assert begins(make())


@pytest.mark.parametrize("form", ["bytes", "bytearray", "message"])
def test_models_in_memory_begin_too(form: str) -> None:
    def given(text: str) -> Any:
        model = onnx.parser.parse_model(text)
        content = model.SerializeToString()
        return {"bytes": content, "bytearray": bytearray(content)}.get(form, model)

    first = onnxplug.InferenceSession(given(MODEL))
    assert np.array_equal(run(first), np.maximum(X + X, 0))
    session = onnxplug.InferenceSession(given(MODEL))
    assert np.array_equal(run(session), np.maximum(X + X, 0))
    assert begins(session)
    assert session.get_modelmeta().graph_name == "kept"
    assert not begins(session)
    other = onnxplug.InferenceSession(given(MODEL.replace("Add", "Mul")))
    assert not begins(other)
    assert np.array_equal(run(other), np.maximum(X * X, 0))


def save_beside(path: Path) -> None:
    """A model with its weights, zeros, in ``w.bin`` beside it."""
    model = onnx.parser.parse_model(MODEL.replace("Add (x, x)", "Add (x, w)"))
    model.graph.node[1].op_type = "Identity"
    w = onnx.numpy_helper.from_array(np.zeros(40, np.float32), "w")
    model.graph.initializer.append(w)
    onnx.save(
        model, path, save_as_external_data=True, location="w.bin", size_threshold=0
    )


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_folder_of_external_data_is_that_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool
) -> None:
    path = tmp_path / "model.onnx"
    save_beside(path)
    options = onnxplug.SessionOptions()
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", "."
    )
    for value in (0, 1, 0):
        folder = tmp_path / str(value)
        folder.mkdir(exist_ok=True)
        (folder / "w.bin").write_bytes(np.full(40, value, np.float32).tobytes())
        monkeypatch.chdir(folder)
        for _ in range(2):
            given = path.read_bytes() if in_memory else path
            session = onnxplug.InferenceSession(given, options)
            np.testing.assert_allclose(run(session), X + value, rtol=1e-6)
            session.close()


def test_a_link_that_leads_elsewhere_is_followed(path: Path) -> None:
    save_beside(path)
    link = path.with_name("w.bin")
    for value in (0, 1):
        name = f"weights.{value}"
        path.with_name(name).write_bytes(np.full(40, value, np.float32).tobytes())
        link.unlink()
        link.symlink_to(name)
        for is_second in (False, True):
            session = onnxplug.InferenceSession(path)
            assert begins(session) == is_second
            np.testing.assert_allclose(run(session), X + value, rtol=1e-6)
