"""``onnxruntime.backend``: any keyword is taken, but none that writes files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
import onnxplug.backend
import onnxplug_onnxruntime as ort
from onnxplug.errors import OptionError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of what it imports
    import onnxruntime.backend

MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) '
    "{ y = Relu (x) }"
)
X = np.float32([-1, 2])

BOTH = pytest.mark.parametrize(
    "backend", [onnxruntime.backend, ort.backend], ids=["theirs", "ours"]
)
ALL = pytest.mark.parametrize(
    "backend",
    [onnxruntime.backend, ort.backend, onnxplug.backend],
    ids=["theirs", "ours", "onnxplug's"],
)


def prepare_and_run(backend: Any, model: Any, **keywords: Any) -> list[float]:
    values: list[float] = backend.prepare(model, "CPU", **keywords).run([X])[0].tolist()
    return values


def run_model(backend: Any, model: Any, **keywords: Any) -> list[float]:
    values: list[float] = backend.run(model, [X], "CPU", **keywords)[0].tolist()
    return values


WAYS = pytest.mark.parametrize("way", [prepare_and_run, run_model])
Way = Callable[..., list[float]]


@BOTH
@WAYS
@pytest.mark.parametrize(
    "keywords",
    [
        {"backend_name": "cpu", "verbose": True},
        {"providers": ["NoExecutionProvider"]},
        {"_config": {"session.nothing": "1"}, "threads": "many"},
        {"intra_op_num_threads": 1, "inter_op_num_threads": 2},
        {"log_severity_level": 3, "logid": "backend"},
        {"only_execute_path_to_fetches": True},
    ],
)
def test_keywords_that_mean_nothing_are_taken_silently(
    backend: Any, way: Way, keywords: dict[str, Any]
) -> None:
    assert way(backend, MODEL, **keywords) == [0, 2]


REFUSED = {
    "optimized_model_filepath": "prepared.onnx",
    "profile_file_prefix": "trace",
    "enable_profiling": True,
}


@ALL
@WAYS
@pytest.mark.parametrize("name", REFUSED)
def test_no_keyword_writes_files(
    backend: Any, way: Way, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError, match=f"'{name}' is not permitted") as caught:
        way(backend, MODEL, **{name: REFUSED[name]})
    assert backend is onnxruntime.backend or isinstance(caught.value, OptionError)
    assert not os.listdir()


@ALL
@pytest.mark.parametrize("value", [True, False])
def test_no_keyword_ends_a_run(backend: Any, value: bool) -> None:
    prepared = backend.prepare(MODEL)
    for call in (
        lambda: prepared.run([X], terminate=value),
        lambda: backend.run(MODEL, [X], "CPU", terminate=value),
        lambda: backend.run(prepared, [X], "CPU", terminate=value),
    ):
        with pytest.raises(RuntimeError, match="'terminate' is not permitted"):
            call()
    assert prepared.run([X])[0].tolist() == [0, 2]


@ALL
def test_a_session_is_run_as_it_is(
    backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runtime = onnxruntime if backend is onnxruntime.backend else ort
    session = runtime.InferenceSession(
        MODEL.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    assert run_model(backend, session, **REFUSED) == [0, 2]
    assert not os.listdir()


def test_the_options_that_keywords_set_are_those_of_the_session() -> None:
    prepared = ort.backend.prepare(MODEL, intra_op_num_threads=1)
    assert type(prepared) is ort.backend.OnnxRuntimeBackendRep
    assert type(prepared.session) is ort.InferenceSession
    assert prepared.session.get_session_options().intra_op_num_threads == 1
    assert ort.backend.prepare(prepared) is prepared


@WAYS
def test_onnxplugs_own_refuses_what_nobody_knows(way: Way) -> None:
    for name in ("intra_op_threads", "_config", "path_or_bytes"):
        with pytest.raises(TypeError, match=f"no argument or option '{name}'"):
            way(onnxplug.backend, MODEL, **{name: 3})
    with pytest.raises(TypeError, match="no argument or option '_config'"):
        onnxplug.backend.prepare(MODEL).run([X], _config={"gpu_graph": "1"})
