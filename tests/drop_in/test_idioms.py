"""How well-known programs use ONNX Runtime: the same lines, run on both.

Each is in the manner of the program that it is named for, on a small model of the same
inputs and outputs.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxplug_onnxruntime

CPU = "CPUExecutionProvider"
Idiom = Callable[[Any, str], Any]

IDIOMS: dict[str, tuple[str, Idiom]] = {}
"""By program, the text of a model, and what is done with it: by *ort*, from *path*."""


def idiom(name: str, graph: str) -> Callable[[Idiom], Idiom]:
    def keep(function: Idiom) -> Idiom:
        IDIOMS[name] = graph, function
        return function

    return keep


@idiom(
    "sentence embeddings",
    "g (int64[batch, sequence] input_ids, int64[batch, sequence] attention_mask) => "
    "(float[batch, sequence, 4] last_hidden_state) "
    "<float[9, 4] table = {0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,"
    "23,24,25,26,27,28,29,30,31,32,33,34,35}, int64[1] last = {2}> "
    "{ e = Gather (table, input_ids) m = Unsqueeze (attention_mask, last) "
    "f = Cast <to = 1> (m) last_hidden_state = Mul (e, f) }",
)
def embed(ort: Any, path: str) -> Any:
    """Mean pooling of hidden states, as sentence-transformers and its likes do."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = ort.InferenceSession(path, options, providers=[CPU])
    names = {each.name for each in session.get_inputs()}
    encoded = {
        "input_ids": np.int64([[1, 2, 3], [4, 5, 0]]),
        "attention_mask": np.int64([[1, 1, 1], [1, 1, 0]]),
        "token_type_ids": np.zeros((2, 3), np.int64),
    }
    feed = {name: value for name, value in encoded.items() if name in names}
    hidden = session.run(None, feed)[0]
    mask = encoded["attention_mask"][..., None]
    pooled = (hidden * mask).sum(1) / np.maximum(mask.sum(1), 1e-9)
    return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


@idiom(
    "faces",
    "g (float[1, 3, H, W] input) => (float[1, 3, H, W] scores, float[1, 3, 1, 1] boxes)"
    " { scores = Sigmoid (input) boxes = GlobalAveragePool (input) }",
)
def detect(ort: Any, path: str) -> Any:
    """As insightface: no severity below errors, EPs changed afterwards."""
    ort.set_default_logger_severity(3)
    try:
        session = ort.InferenceSession(path, None, providers=[CPU])
        session.set_providers([CPU])
        given = session.get_inputs()[0]
        assert isinstance(given.shape[2], str)  # sizes are chosen by the program
        blob = np.linspace(-1, 1, 48, dtype=np.float32).reshape(1, 3, 4, 4)
        outputs = [each.name for each in session.get_outputs()]
        return session.run(outputs, {given.name: blob})
    finally:
        ort.set_default_logger_severity(2)


@idiom(
    "speech",
    "g (int64[batch, phonemes] input, int64[batch] input_lengths, float[3] scales) => "
    "(float[batch, 1, phonemes] output) <int64[1] one = {1}, int64[1] zero = {0}> "
    "{ f = Cast <to = 1> (input) s = ReduceSum (scales, zero) u = Unsqueeze (f, one) "
    "output = Mul (u, s) }",
)
def speak(ort: Any, path: str) -> Any:
    """As piper: lengths and scales beside the text, and audio squeezed out."""
    session = ort.InferenceSession(
        str(path), sess_options=ort.SessionOptions(), providers=[CPU]
    )
    phonemes = np.expand_dims(np.array([1, 5, 3], np.int64), 0)
    feed = {
        "input": phonemes,
        "input_lengths": np.array([phonemes.shape[1]], np.int64),
        "scales": np.array([0.667, 1.0, 0.8], np.float32),
    }
    return session.run(None, feed)[0].squeeze()


@idiom(
    "voices",
    "g (float[batch, N] input, float[2, batch, 4] state, int64 sr) => "
    "(float[batch, 1] output, float[2, batch, 4] stateN) <int64[1] axis = {1}> "
    "{ f = Cast <to = 1> (sr) t = Mul (state, f) stateN = Identity (t) "
    "output = ReduceMean (input, axis) }",
)
def listen(ort: Any, path: str) -> Any:
    """As detectors of voices: one thread, state from run to run, a scalar rate."""
    options = ort.SessionOptions()
    options.inter_op_num_threads = 1
    options.intra_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 4
    session = ort.InferenceSession(path, providers=[CPU], sess_options=options)
    state = np.ones((2, 1, 4), dtype="float32")
    probabilities = []
    for chunk in np.linspace(0, 1, 24, dtype=np.float32).reshape(3, 1, 8):
        feed = {"input": chunk, "state": state, "sr": np.array(2, dtype="int64")}
        output, state = session.run(None, feed)
        probabilities.append(output.item())
    return [probabilities, state]


@idiom(
    "text in pictures",
    "g (float[N, 3, 2, W] x) => (float[N, W, 5] y) "
    "<float[6, 5] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3}, "
    "int64[3] shape = {0, -1, 6}> "
    "{ t = Transpose <perm = [0, 3, 1, 2]> (x) r = Reshape (t, shape) "
    "p = MatMul (r, w) y = Softmax <axis = 2> (p) }",
)
def read(ort: Any, path: str) -> Any:
    """As rapidocr: what is there is asked for first, and characters are metadata."""
    wanted = [
        ("CUDAExecutionProvider", {"device_id": 0}),
        (CPU, {"arena_extend_strategy": "kSameAsRequested"}),
    ]
    there = ort.get_available_providers()
    wanted = [each for each in wanted if each[0] in there]
    options = ort.SessionOptions()
    options.enable_cpu_mem_arena = False
    session = ort.InferenceSession(path, sess_options=options, providers=wanted)
    letters = session.get_modelmeta().custom_metadata_map["character"].splitlines()
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(1, 3, 2, 4)
    scores = session.run([session.get_outputs()[0].name], {"x": x})[0]
    return [[letters[i] for i in scores[0].argmax(1)], scores, session.get_providers()]


@idiom(
    "tabular",
    "g (double[N, 2] a, string[N, 1] b) => (double[N, 2] y, string[N, 1] c) "
    "{ y = Mul (a, a) c = Identity (b) }",
)
def score(ort: Any, path: str) -> Any:
    """As services of models made of tables: bytes, columns by name, by binding."""
    session = ort.InferenceSession(Path(path).read_bytes())
    columns = {"a": [[1.0, 2.0], [3.0, 4.0]], "b": [["x"], ["ü"]]}
    types = {each.name: each.type for each in session.get_inputs()}
    numpy_types = {"tensor(double)": np.float64, "tensor(string)": np.str_}
    feed = {name: np.array(columns[name], numpy_types[types[name]]) for name in types}
    return session.run(["c", "y"], feed)


@idiom(
    "generation",
    "g (int64[1, S] ids, float[1, P, 2] past) => (float[1, S, 2] logits, "
    "float[1, T, 2] present) "
    "<int64[1] one = {1}, int64[1] two = {2}> "
    "{ f = Cast <to = 1> (ids) u = Unsqueeze (f, two) e = Concat <axis = 2> (u, u) "
    "present = Concat <axis = 1> (past, e) s = ReduceSum (present, one) "
    "logits = Add (e, s) }",
)
def generate(ort: Any, path: str) -> Any:
    """As loops with a cache: outputs of one run are inputs of the next, bound."""
    session = ort.InferenceSession(path, providers=[CPU])
    past = ort.OrtValue.ortvalue_from_numpy(np.zeros((1, 0, 2), np.float32))
    ids, told = np.int64([[3, 4]]), []
    for _ in range(3):
        binding = session.io_binding()
        binding.bind_cpu_input("ids", ids)
        binding.bind_ortvalue_input("past", past)
        binding.bind_output("logits")
        binding.bind_output("present", "cpu")
        session.run_with_iobinding(binding)
        logits, past = binding.get_outputs()
        ids = logits.numpy()[:, -1:, 0].astype(np.int64) + 1
        told.append(ids.item())
    return [told, past.numpy(), past.shape()]


@pytest.fixture
def logged_as_before() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("onnxplug", "onnxplug.session")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.mark.usefixtures("logged_as_before")
@pytest.mark.parametrize("name", IDIOMS)
def test_the_same_lines_do_the_same(name: str, tmp_path: Path) -> None:
    graph, use = IDIOMS[name]
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {graph}')
    onnx.helper.set_model_props(model, {"character": "a\nb\nc\nd\ne"})
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of options without effect
        found, expected = (
            use(ort, str(path)) for ort in (onnxplug_onnxruntime, onnxruntime)
        )
    assert_same(found, expected)


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_same(*pair)
    elif isinstance(expected, str):
        assert found == expected
    elif np.asarray(expected).dtype == object:
        assert found.tolist() == expected.tolist()
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
