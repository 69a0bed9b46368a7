"""The models of the benchmarks, small, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
from models import MODELS, Case, Exporter
from models.decoders import gpt2, llama
from models.encoders import bert, distilbert, vit
from models.small import chain, mlp

import onnxplug

BERT = {"layers": 2, "width": 32, "heads": 4, "inner": 48, "words": 50, "length": 12}
GPT2 = {"layers": 2, "width": 32, "heads": 4, "words": 50}
LLAMA = {"layers": 2, "width": 32, "heads": 4, "groups": 2, "inner": 48}

SMALL: dict[str, Callable[[], Case]] = {
    "mlp": lambda: mlp(3, (8, 16, 5)),
    "bert-base": lambda: bert(Exporter.DYNAMO, **BERT),
    "bert-base-torchscript": lambda: bert(Exporter.TORCHSCRIPT, **BERT, padding=3),
    "distilbert": lambda: distilbert(**BERT, padding=3),
    "vit-b16": lambda: vit(
        layers=2, width=32, heads=4, inner=48, image=32, patch=8, classes=7
    ),
    "gpt2-prefill": lambda: gpt2(9, 0, **GPT2),
    "gpt2-decode": lambda: gpt2(1, 9, **GPT2),
    "llama-prefill": lambda: llama(9, 0, **LLAMA),
    "llama-decode": lambda: llama(1, 9, **LLAMA),
    "add": MODELS["add"],
    "chain": lambda: chain(40, 8),
}


def test_every_model_is_tested() -> None:
    assert SMALL.keys() == MODELS.keys()


@pytest.mark.parametrize("name", SMALL)
def test_is_valid_and_runs_alike(name: str) -> None:
    model, feeds = SMALL[name]()
    onnx.checker.check_model(model, full_check=True)
    content = model.SerializeToString()
    expected = onnxruntime.InferenceSession(
        content, providers=["CPUExecutionProvider"]
    ).run(None, feeds)
    got = onnxplug.InferenceSession(content, providers=["CPUExecutionProvider"]).run(
        None, feeds
    )
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        assert np.isfinite(theirs).all()
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_the_exporters_forms_of_bert_are_the_same_function() -> None:
    results = []
    for exporter in Exporter:
        model, feeds = bert(exporter, **BERT, padding=3)
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        results.append(session.run(None, feeds)[0])
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("build", [lambda n, p: gpt2(n, p, **GPT2),
                                   lambda n, p: llama(n, p, **LLAMA)])  # fmt: skip
def test_the_cache_of_a_decoder_comes_before_the_new_tokens(
    build: Callable[[int, int], Case],
) -> None:
    model, feeds = build(1, 9)
    names = [output.name for output in model.graph.output]
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    results = dict(zip(names, session.run(None, feeds), strict=True))
    past = {name: feed for name, feed in feeds.items() if name.startswith("past")}
    assert len(past) == 4
    for name, feed in past.items():
        present = results[name.replace("past_key_values", "present")]
        assert present.shape[2] == 10
        assert (present[:, :, :9] == feed).all()


def test_weights_are_the_same_each_time() -> None:
    first, second = chain(), chain()
    assert first.model.SerializeToString() == second.model.SerializeToString()
