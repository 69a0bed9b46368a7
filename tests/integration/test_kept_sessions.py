"""Sessions that begin as an earlier process left them: the same results and errors,
and nothing believed that is damaged, or of another model, program or machine."""

from __future__ import annotations

import gc
import marshal
import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxplug
import onnxplug.errors
import onnxplug_microsoft
from onnxplug.attached import AttachedSessions, attached
from onnxplug.authoring import files
from onnxplug.authoring.entries import Cache
from onnxplug.search_path import surroundings
from onnxplug.session import opening, start
from onnxplug.session.start.kept import FOLDER
from onnxplug.session.start.partition import KeptPartition
from onnxplug.session.start.runner import StartRunner

KEEP_PLANS = "ONNXPLUG_CPU_KEEP_PLANS"
AT_ONCE = "from onnxplug.authoring import files; files._TICK = 0; "
"""A process of its own, too, believes in files that were written a moment ago."""

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((3, 40), np.float32)
WEIGHTS = RANDOM.standard_normal((40, 24), np.float32)


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Sessions are kept in this file, as if each were the first of its process."""
    monkeypatch.setenv(KEEP_PLANS, "1")
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(start, "_around", surroundings)
    monkeypatch.setattr(files, "_TICK", 0)


def save(
    path: Path,
    weights: Any = WEIGHTS,
    *,
    rows: int | str = "n",
    declared: int | str = "n",
    external: bool = False,
) -> Path:
    """``relu(x @ w)``, of *rows* rows."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Relu", ["p"], ["y"]),
    ]
    columns = weights.shape[1]
    graph = helper.make_graph(
        nodes,
        "kept",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 40])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [declared, columns])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    onnx.save(
        model, path, save_as_external_data=external, location="w.bin", size_threshold=0
    )
    return path


def expected(x: Any = X, weights: Any = WEIGHTS) -> Any:
    return np.maximum(x.astype(np.float64) @ weights.astype(np.float64), 0)


def run(session: onnxplug.InferenceSession, x: Any = X) -> Any:
    (y,) = session.run(None, {"x": x})
    return y


def begins(session: onnxplug.InferenceSession) -> bool:
    """Whether the model has not been opened."""
    return isinstance(session._runner, StartRunner)


def opened(path: Path, x: Any = X) -> onnxplug.InferenceSession:
    """A session that had its model opened, and was run."""
    session = onnxplug.InferenceSession(path)
    assert not begins(session)
    run(session, x)
    return session


def begun(path: Path, x: Any = X) -> onnxplug.InferenceSession:
    """A session that begins as another one was left."""
    run(onnxplug.InferenceSession(path), x)
    session = onnxplug.InferenceSession(path)
    assert begins(session)
    return session


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save(tmp_path / "model.onnx")


@pytest.mark.parametrize("external", [False, True], ids=["inside", "beside"])
@pytest.mark.parametrize("rows", [3, "n"])
def test_the_results_are_the_same(
    tmp_path: Path, rows: int | str, external: bool
) -> None:
    path = save(tmp_path / "model.onnx", rows=rows, declared=rows, external=external)
    first = opened(path)
    session = onnxplug.InferenceSession(path)
    assert begins(session)
    assert session.get_inputs() == first.get_inputs()
    assert session.get_outputs() == first.get_outputs()
    assert session.get_providers() == first.get_providers()
    y = run(session)
    assert begins(session)
    np.testing.assert_allclose(y, expected(), rtol=1e-5, atol=1e-5)
    assert np.array_equal(y, run(first))
    assert y.flags.writeable
    y[...] = 0
    assert np.array_equal(run(session), run(first))


def test_shapes_that_were_not_run_have_the_model_opened(path: Path) -> None:
    session = begun(path)
    x = RANDOM.standard_normal((7, 40), np.float32)
    np.testing.assert_allclose(run(session, x), expected(x), rtol=1e-5, atol=1e-5)
    assert not begins(session)
    np.testing.assert_allclose(run(session), expected(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "feed",
    [{}, {"x": X, "z": X}, {"x": X[:, :3]}, {"x": X.astype(np.float64)}, {"x": None}],
    ids=["missing", "unknown", "shape", "dtype", "nothing"],
)
def test_errors_are_the_same(path: Path, feed: dict[str, Any]) -> None:
    session = begun(path)
    found: list[BaseException] = []
    for each in (session, opened(save(path.with_name("other.onnx")))):
        with pytest.raises(onnxplug.errors.InputError) as caught:
            each.run(None, feed)
        found.append(caught.value)
    assert type(found[0]) is type(found[1])
    assert str(found[0]) == str(found[1])


def test_what_a_start_does_not_know_the_model_tells(path: Path) -> None:
    session = begun(path)
    assert session.get_modelmeta().graph_name == "kept"
    assert not begins(session)
    assert "CPUExecutionProvider" in str(begun(path).explain())
    assert set(begun(path).get_provider_options()) == {"CPUExecutionProvider"}
    p, y = begun(path).run(["p", "y"], {"x": X})
    np.testing.assert_allclose(np.maximum(p, 0), y)
    session = begun(path)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    (y,) = binding.copy_outputs_to_cpu()
    np.testing.assert_allclose(y, expected(), rtol=1e-5, atol=1e-5)


def test_a_run_may_have_options(path: Path) -> None:
    session = begun(path)
    options = onnxplug.RunOptions()
    options.terminate = True
    with pytest.raises(onnxplug.errors.RunCancelled):
        session.run(None, {"x": X}, options)
    np.testing.assert_allclose(run(session), expected(), rtol=1e-5, atol=1e-5)


def test_closed_sessions_do_not_run(path: Path) -> None:
    session = begun(path)
    session.close()
    with pytest.raises(onnxplug.errors.RunError, match="is closed"):
        run(session)
    assert [each.name for each in session.get_inputs()] == ["x"]
    assert "partition 0" in str(session.explain())
    with pytest.raises(onnxplug.errors.RunError, match="is closed"):
        run(session)


def test_sessions_are_pickled_and_given_other_eps(path: Path) -> None:
    session = begun(path)
    assert np.array_equal(run(pickle.loads(pickle.dumps(session))), run(session))
    session.set_providers(["CPUExecutionProvider"], [{"compile": "0"}])
    np.testing.assert_allclose(run(session), expected(), rtol=1e-5, atol=1e-5)


def test_a_session_is_in_use_while_its_model_is_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is detached then, so that nobody takes its EP away meanwhile."""
    session = begun(path)
    ep = "CPUExecutionProvider"
    detach, asked = AttachedSessions.detach, []

    def looked_at(self: AttachedSessions, name: str, user: object) -> None:
        detach(self, name, user)
        asked.append(session in attached.of(ep))

    monkeypatch.setattr(AttachedSessions, "detach", looked_at)
    assert session.explain().nodes and not begins(session)
    assert session in attached.of(ep) and all(asked)
    session.close()
    assert asked[-1] is False and session not in attached.of(ep)


@pytest.mark.parametrize("external", [False, True])
def test_paths_that_are_given_in_other_ways_are_those_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, external: bool
) -> None:
    path = save(tmp_path / "model.onnx", external=external)
    monkeypatch.chdir(tmp_path)
    for given in ("model.onnx", f"../{tmp_path.name}/model.onnx", str(path)):
        for is_kept in (False, True):
            session = onnxplug.InferenceSession(given)
            assert begins(session) is is_kept
            np.testing.assert_allclose(run(session), expected(), 1e-3, 1e-4)
            assert session.explain().nodes


def test_a_model_opened_late_does_not_undo_other_eps(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = begun(path)
    entered, goes_on = threading.Event(), threading.Event()
    make = opening.open_model

    def late(request: Any, *given: Any) -> Any:
        if request.provider_options is None:
            entered.set()
            assert goes_on.wait(20)
        return make(request, *given)

    monkeypatch.setattr(opening, "open_model", late)
    opens = threading.Thread(target=session.explain)
    changes = threading.Thread(
        target=session.set_providers,
        args=(["CPUExecutionProvider"], [{"compile": "0"}]),
    )
    opens.start()
    assert entered.wait(20)
    changes.start()
    changes.join(0.5)  # waits for the other one, or is done before
    goes_on.set()
    for thread in (opens, changes):
        thread.join(20)
    assert session.get_provider_options()["CPUExecutionProvider"]["compile"] == "False"


def write_another(path: Path) -> None:
    save(path, WEIGHTS * 2)


def write_over(path: Path) -> None:
    """As many bytes, by the same name, of the same time."""
    content = path.read_bytes()
    where = content.index(WEIGHTS.tobytes())
    with path.open("r+b") as file:
        file.seek(where)
        file.write((WEIGHTS * 2).tobytes())


@pytest.mark.parametrize("change", [write_another, write_over])
def test_another_model_is_opened(path: Path, change: Callable[[Path], None]) -> None:
    opened(path)
    change(path)
    y = run(onnxplug.InferenceSession(path))
    np.testing.assert_allclose(y, expected() * 2, rtol=1e-5, atol=1e-5)


def test_other_weights_beside_the_model_are_read(tmp_path: Path) -> None:
    path = save(tmp_path / "model.onnx", external=True)
    opened(path)
    weights = WEIGHTS * 2
    (tmp_path / "w.bin").write_bytes(weights.tobytes())
    y = run(onnxplug.InferenceSession(path))
    np.testing.assert_allclose(y, expected() * 2, rtol=1e-5, atol=1e-5)


def test_other_functions_of_a_supplier_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    monkeypatch.setattr(
        onnxplug_microsoft, "__path__", [*onnxplug_microsoft.__path__, str(folder)]
    )
    node = helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft")
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 40])
        for name in "xy"
    ]
    graph = helper.make_graph([node], "supplied", values[:1], values[1:])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    begun(path)
    (folder / "functions.py").write_text("# another one")
    assert not begins(onnxplug.InferenceSession(path))
    assert begins(onnxplug.InferenceSession(path))


def test_a_model_that_changed_later_is_not_that_of_the_session(path: Path) -> None:
    session = begun(path)
    write_another(path)
    with pytest.raises(onnxplug.errors.InvalidModel, match="not as it was"):
        session.explain()


def entries() -> Cache:
    return Cache(FOLDER)


def test_damaged_entries_are_made_anew(path: Path) -> None:
    session = begun(path)
    y = run(session)
    (name,) = entries().names()
    folder = entries().folder
    assert folder is not None
    file = folder / f"{name}.entry"
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole[:20], b"", whole[:-1] + bytes([whole[-1] ^ 1])):
        file.write_bytes(damaged)
        assert np.array_equal(run(opened(path)), y)
        assert begins(onnxplug.InferenceSession(path))


@pytest.mark.parametrize("content", [None, (), (1,) * 14, b"", "text", 7])
def test_entries_of_another_form_are_not_believed(path: Path, content: Any) -> None:
    y = run(opened(path))
    (name,) = entries().names()
    entries().store(name, marshal.dumps(content))
    assert np.array_equal(run(opened(path)), y)


@pytest.mark.parametrize(
    "results",
    [[], [X], [expected()], [None], [expected().astype(np.float32)[:2]]],
    ids=["none", "shape", "dtype", "nothing", "rows"],
)
def test_results_are_looked_at(
    path: Path, monkeypatch: pytest.MonkeyPatch, results: Any
) -> None:
    session = begun(path)
    assert isinstance(session._runner, StartRunner)
    monkeypatch.setattr(
        session._runner._compiled, "run", lambda *given: results, raising=False
    )
    np.testing.assert_allclose(run(session), expected(), rtol=1e-5, atol=1e-5)
    assert not begins(session)


@pytest.mark.parametrize("error", [RuntimeError(), MemoryError(), ValueError("no")])
def test_failures_have_the_model_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*given: Any) -> Any:
        raise error

    session = begun(path)
    assert isinstance(session._runner, StartRunner)
    monkeypatch.setattr(session._runner._compiled, "run", fail, raising=False)
    np.testing.assert_allclose(run(session), expected(), rtol=1e-5, atol=1e-5)


def test_interrupts_pass(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*given: Any) -> Any:
        raise KeyboardInterrupt

    session = begun(path)
    assert isinstance(session._runner, StartRunner)
    monkeypatch.setattr(session._runner._compiled, "run", interrupt, raising=False)
    with pytest.raises(KeyboardInterrupt):
        run(session)


def test_a_wrong_declaration_warns_each_time(tmp_path: Path) -> None:
    path = save(tmp_path / "model.onnx", declared=5)
    for _ in range(2):
        with pytest.warns(onnxplug.errors.ModelWarning, match="has shape"):
            run(onnxplug.InferenceSession(path))


def test_what_warned_is_not_kept(path: Path) -> None:
    for _ in range(3):
        options = onnxplug.SessionOptions()
        options.add_session_config_entry("session.serve_while_compiling", "1")
        with pytest.warns(onnxplug.errors.OptionWarning, match="no effect"):
            session = onnxplug.InferenceSession(path, options)
        assert not begins(session)


def test_it_can_be_turned_off(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(path)
    monkeypatch.setenv(start.KEEP, "0")
    opened(path)
    monkeypatch.setenv(start.KEEP, "yes")
    with pytest.raises(onnxplug.errors.OptionError, match="can be 1 or 0"):
        onnxplug.InferenceSession(path)
    monkeypatch.delenv(start.KEEP)
    monkeypatch.setenv(KEEP_PLANS, "0")
    opened(path)


def test_options_tell_sessions_apart(path: Path) -> None:
    opened(path)
    for change in (
        lambda o: setattr(o, "intra_op_num_threads", 2),
        lambda o: o.add_free_dimension_override_by_name("n", 3),
        lambda o: setattr(o, "enable_profiling", True),
        lambda o: setattr(o, "log_severity_level", 2),
    ):
        options = onnxplug.SessionOptions()
        options.profile_file_prefix = str(path.with_name("trace"))
        options.logid = "kept"  # whose logger nobody else has
        change(options)
        session = onnxplug.InferenceSession(path, options)
        assert not begins(session)
        np.testing.assert_allclose(run(session), expected(), rtol=1e-5, atol=1e-5)
        session.close()
    session = onnxplug.InferenceSession(
        path, providers=[("CPUExecutionProvider", {"compile": "0"})]
    )
    assert not begins(session)


def partitions() -> int:
    """How many there are."""
    gc.collect()
    return sum(type(each) is KeptPartition for each in gc.get_objects())


def test_nodes_on_arrays_are_restored(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "half"], ["s"]),
        helper.make_node(
            "ZipMap", ["s"], ["y"], domain="ai.onnx.ml", classlabels_strings=["a", "b"]
        ),
    ]
    value = helper.make_map_type_proto(
        TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    )
    graph = helper.make_graph(
        nodes,
        "maps",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_value_info("y", helper.make_sequence_type_proto(value))],
        [numpy_helper.from_array(np.float32([0.5]), "half")],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    x = np.float32([[1, 2], [3, 4]])
    before = partitions()
    session = begun(path, x)
    assert session.run(None, {"x": x}) == [[{"a": 0.5, "b": 1}, {"a": 1.5, "b": 2}]]
    assert begins(session)
    session.close()
    del session
    assert partitions() <= before  # or weights would stay with one


def test_sizes_that_a_feed_belies_have_the_model_made_anew(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["y"])],
        "belied",
        [
            helper.make_tensor_value_info("a", TensorProto.FLOAT, ["n", "n"]),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, ["n", "n"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    path = tmp_path / "model.onnx"
    imports = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    square = X[:, :3].copy()
    for _ in range(2):
        session = onnxplug.InferenceSession(path)
        session.run(None, {"a": square, "b": square})
    assert begins(session)
    (y,) = session.run(None, {"a": X, "b": WEIGHTS})
    np.testing.assert_allclose(y, X @ WEIGHTS, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("api", ["onnxplug", "onnxplug_onnxruntime"])
def test_a_start_imports_nothing_that_reads_models(path: Path, api: str) -> None:
    program = (
        f"import sys, numpy, {api} as api; {AT_ONCE}"
        f"session = api.InferenceSession({str(path)!r}); "
        "session.run(None, {'x': numpy.zeros((3, 40), numpy.float32)}); "
        "print(*sys.modules)"
    )
    rooms = ("graph.load", "compile", "partition", "plugins", "prepare")
    unwanted = {"onnx", *(f"onnxplug.{room}" for room in rooms)}
    unwanted.add("onnxplug_compiler.schedule.planner")
    for _ in range(2):
        loaded = set(
            subprocess.run(
                [sys.executable, "-c", program],
                check=True,
                capture_output=True,
                text=True,
            ).stdout.split()
        )
    assert not loaded & unwanted


def test_warnings_are_counted_by_nobody_else(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(begun(path))
