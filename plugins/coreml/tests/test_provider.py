"""Sessions on Core AI: shapes, threads, integers, what is kept on disk."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug.ep import DataType
from onnxplug.errors import EpWarning, NodeError, OptionError, OutputMismatch
from onnxplug_coreml.partition import narrowed

EP = "CoreMLExecutionProvider"
X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def network(parse: Callable[..., onnx.ModelProto]) -> onnx.ModelProto:
    """Some arithmetic on rows, of which there may be any number."""
    return parse(
        "p = MatMul (x, w)\n s = Add (p, b)\n r = Relu (s)\n y = Softmax <axis=1> (r)",
        "float[rows, 4] x",
        "float[rows, 3] y",
        weights="float[4, 3] w = {0.1, -2, 3, 0.4, 5, -0.6, 7, 8, -9, 1, 0, -1}, "
        "float[3] b = {1, 2, 3}",
    )


def reference(model: onnx.ModelProto, x: Any) -> Any:
    return ReferenceEvaluator(model).run(None, {"x": x})[0]


def test_any_number_of_rows(
    network: onnx.ModelProto, alone: Callable[..., onnxplug.InferenceSession]
) -> None:
    session = alone(network)
    draw = np.random.default_rng(0)
    for rows in (1, 5, 3, 5, 17):
        x = draw.normal(size=(rows, 4)).astype(np.float32)
        (found,) = session.run(None, {"x": x})
        np.testing.assert_allclose(found, reference(network, x), rtol=1e-5, atol=1e-6)


def test_no_rows_at_all(
    network: onnx.ModelProto, alone: Callable[..., onnxplug.InferenceSession]
) -> None:
    session = alone(network)
    (found,) = session.run(None, {"x": np.empty((0, 4), np.float32)})
    assert (found.shape, found.dtype) == ((0, 3), np.float32)


def test_eight_threads(
    network: onnx.ModelProto, alone: Callable[..., onnxplug.InferenceSession]
) -> None:
    session = alone(network)
    draw = np.random.default_rng(0)
    feeds = [draw.normal(size=(1 + n % 3, 4)).astype(np.float32) for n in range(8)]
    wrong: list[str] = []

    def work(x: Any) -> None:
        wanted = reference(network, x)
        for _ in range(20):
            (found,) = session.run(None, {"x": x})
            if not np.allclose(found, wanted, rtol=1e-5, atol=1e-6):
                wrong.append(f"{found} is not {wanted}")

    threads = [threading.Thread(target=work, args=(x,)) for x in feeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_bound_outputs_are_filled(
    network: onnx.ModelProto, alone: Callable[..., onnxplug.InferenceSession]
) -> None:
    session = alone(network)
    room = np.full((3, 3), -1, np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output("y", onnxplug.OrtValue.ortvalue_from_numpy(room))
    session.run_with_iobinding(binding)
    (found,) = binding.get_outputs()
    np.testing.assert_allclose(found.numpy(), reference(network, X), rtol=1e-5)
    binding.bind_ortvalue_output(
        "y", onnxplug.OrtValue.ortvalue_from_numpy(np.empty((2, 3), np.float32))
    )
    with pytest.raises(OutputMismatch):
        session.run_with_iobinding(binding)


def test_what_is_returned_is_never_written_again(
    network: onnx.ModelProto, alone: Callable[..., onnxplug.InferenceSession]
) -> None:
    session = alone(network)
    (first,) = session.run(None, {"x": X})
    kept = first.copy()
    for _ in range(3):
        session.run(None, {"x": -X})
    np.testing.assert_array_equal(first, kept)
    session.close()
    np.testing.assert_array_equal(first, kept)


def test_an_index_out_of_bounds_is_an_error(
    parse: Callable[..., onnx.ModelProto],
    alone: Callable[..., onnxplug.InferenceSession],
) -> None:
    model = parse("y = Gather (x, i)", "float[3, 4] x, int64[2] i", "float[2, 4] y")
    session = alone(model)
    np.testing.assert_array_equal(
        session.run(None, {"x": X, "i": np.array([2, -3])})[0], X[[2, 0]]
    )
    for wrong in (3, -4, 2**32 + 2):
        with pytest.raises(NodeError, match="Gather giving 'y': an index of 'i'"):
            session.run(None, {"x": X, "i": np.array([wrong, 0])})


def test_an_integer_that_the_engine_lacks_is_an_error() -> None:
    narrow = narrowed("i", np.array([2**31 - 1, -(2**31)]), DataType.INT32)
    assert narrow.dtype == np.int32
    np.testing.assert_array_equal(narrow, [2**31 - 1, -(2**31)])
    for wrong in (2**31, -(2**31) - 1):
        with pytest.raises(ValueError, match=f"'i' has {wrong}, and the model"):
            narrowed("i", np.array([0, wrong]), DataType.INT32)


def test_options_decide_what_is_taken(
    network: onnx.ModelProto, coreai: Any, parse: Callable[..., onnx.ModelProto]
) -> None:
    def refusals(model: onnx.ModelProto, **options: Any) -> set[str]:
        with pytest.warns(EpWarning, match="runs no node"):
            session = onnxplug.InferenceSession(model, providers=[(EP, options), "cpu"])
        return {
            str(passed.reason)
            for node in session.explain().nodes
            for passed in node.passed_over
        }

    (reason,) = refusals(network, MinimumNodes=5)
    assert "a partition of 4 nodes; the option MinimumNodes is 5" in reason
    found = refusals(network, RequireStaticInputShapes=True)
    assert any("RequireStaticInputShapes excludes" in reason for reason in found)


@pytest.mark.parametrize("taken", [False, True])
def test_bodies_of_control_flow_are_taken_if_asked_for(
    coreai: Any, parse: Callable[..., onnx.ModelProto], taken: bool
) -> None:
    model = parse(
        """
        last, all = Loop (count, go, x) <body = grow
            (int64 n, bool c, float[3] v) => (bool more, float[3] next, float[3] kept) {
                more = Identity (c)
                next = Add (v, v)
                kept = Neg (v)
            }>
        """,
        "float[3] x, int64 count",
        "float[3] last, float[m, 3] all",
        weights="bool go = {1}",
    )
    with nullcontext() if taken else pytest.warns(EpWarning, match="runs no node"):
        session = onnxplug.InferenceSession(
            model, providers=[(EP, {"EnableOnSubgraphs": taken}), "cpu"]
        )
    placed = {node.op_type: node.ep for node in session.explain().nodes}
    assert (placed["Add"] == EP) is taken
    feed = {"x": np.array([1, 2, 3], np.float32), "count": np.array(4)}
    wanted = ReferenceEvaluator(model).run(None, feed)
    for found, right in zip(session.run(None, feed), wanted, strict=True):
        np.testing.assert_array_equal(found, right)


def test_float16_is_what_the_option_says(
    network: onnx.ModelProto, alone: Callable[..., onnxplug.InferenceSession]
) -> None:
    (narrow,) = alone(network, ComputePrecision="Float16").run(None, {"x": X})
    assert narrow.dtype == np.float32
    wanted = reference(network, X)
    np.testing.assert_allclose(narrow, wanted, atol=2e-2)
    assert abs(narrow - wanted).max() > 1e-6


# what is kept on disk


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where models were built."""
    from onnxplug_coreml.coreai import engine

    folders: list[Path] = []
    build = engine.build

    def remember(program: Any, settings: Any, folder: Path) -> Path:
        folders.append(folder)
        return build(program, settings, folder)

    monkeypatch.setattr("onnxplug_coreml.coreai.build", remember)
    return folders


def opened(model: Any, **options: Any) -> onnxplug.InferenceSession:
    return onnxplug.InferenceSession(model, providers=[(EP, options), "cpu"])


def test_the_hosts_cache_keeps_models(
    coreai: Any,
    network: onnx.ModelProto,
    built: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path))
    for _ in range(2):
        session = opened(network, cache=True)
        np.testing.assert_allclose(
            session.run(None, {"x": X})[0], reference(network, X), rtol=1e-5
        )
        session.close()
    assert len(built) == 1
    assert not built[0].exists()


def test_a_folder_of_the_users_keeps_models(
    coreai: Any,
    network: onnx.ModelProto,
    built: list[Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = tmp_path / "models"

    def run(**options: Any) -> None:
        session = opened(network, ModelCacheDirectory=folder, **options)
        np.testing.assert_allclose(
            session.run(None, {"x": X})[0], reference(network, X), atol=2e-2
        )
        session.close()

    run()
    run()
    assert len(built) == 1
    (kept,) = folder.iterdir()
    run(ComputePrecision="Float16")
    assert len(built) == 2
    assert len(list(folder.iterdir())) == 2
    (kept / "manifest.json").write_text("{}")
    with caplog.at_level(logging.WARNING):
        run()
    assert len(built) == 3
    assert "built anew" in caplog.text
    run()
    assert len(built) == 3
    (folder / "file").write_text("")
    with pytest.raises(OptionError, match="ModelCacheDirectory"):
        opened(network, ModelCacheDirectory=folder / "file")


def test_a_model_is_compiled_ahead(
    coreai: Any,
    parse: Callable[..., onnx.ModelProto],
    tmp_path: Path,
    built: list[Path],
) -> None:
    model = parse("p = Mul (x, x)\n y = Exp (p)", "float[3, 4] x", "float[3, 4] y")
    compiler = onnxplug.ModelCompiler(
        onnxplug.SessionOptions(), model, providers=[(EP, {})]
    )
    compiler.compile_to_file(tmp_path / "ahead.onnx")
    assert len(built) == 1
    session = opened(tmp_path / "ahead.onnx")
    np.testing.assert_allclose(
        session.run(None, {"x": X})[0], reference(model, X), rtol=1e-5
    )
    assert len(built) == 1
