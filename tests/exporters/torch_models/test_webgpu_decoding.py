"""GPT-2 as PyTorch exports it, decoding on WebGPU: what is planned, and copied."""

from __future__ import annotations

import copy
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="make test-webgpu installs it")
pytest.importorskip("transformers", reason="make test-webgpu installs it")
if "webgpu" not in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
    pytest.importorskip("wgpu", reason="make test-webgpu installs it")

import torch

import onnxplug
from onnxplug_testing.webgpu_copies import counted

from .decoding import Decoder
from .test_zoo import export_small

LENGTHS = 12
EPS = ["WebGpuExecutionProvider", "CPUExecutionProvider"]


def on_device(array: Any) -> onnxplug.OrtValue:
    return onnxplug.OrtValue.ortvalue_from_numpy(np.asarray(array), "webgpu", 0)


def plans(session: onnxplug.InferenceSession) -> int:
    return sum(each.counts.get("plans", 0) for each in session.explain().partitions)


def exported(folder: Path) -> tuple[Path, Decoder]:
    torch.manual_seed(7)
    module = Decoder().eval().requires_grad_(False)
    file, word = folder / "decoder.onnx", torch.tensor([[3]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's own affairs
        torch.onnx.export(
            module,
            (word, torch.tensor([0]), *module.empty()),
            file,
            dynamo=True,
            verbose=False,
        )
    return file, module


def test_caches_with_room_are_updated_in_place(tmp_path: Path) -> None:
    """64 words, which are chosen, and counted, on the device: one plan, and of a word
    nothing is copied but itself."""
    file, module = exported(tmp_path)
    session = onnxplug.InferenceSession(file, providers=EPS)
    nodes = session.explain().nodes
    assert {(node.ep, node.tier) for node in nodes} == {(EPS[0], "compiled")}
    words = [on_device([[word]]) for word in (3, 0)]
    places = [on_device([0]) for _ in range(2)]
    caches = [on_device(each.numpy()) for each in module.empty()]
    bindings = []
    for here, there in ((0, 1), (1, 0)):
        binding = session.io_binding()
        taken = [words[here], places[here], *caches]
        given = [words[there], places[there], *caches]
        for arg, value in zip(session.get_inputs(), taken, strict=True):
            binding.bind_ortvalue_input(arg.name, value)
        for arg, value in zip(session.get_outputs(), given, strict=True):
            binding.bind_ortvalue_output(arg.name, value)
        bindings.append(binding)
    found, counts = [], []
    with counted() as copied:
        for step in range(64):
            before = dict(copied)
            session.run_with_iobinding(bindings[step % 2])
            found.append(int(words[1 - step % 2].numpy()[0, 0]))
            counts.append({name: copied[name] - before[name] for name in copied})
    wide, wanted = copy.deepcopy(module).double(), []
    state = [torch.tensor([[3]]), torch.tensor([0]), *wide.empty()]
    for _ in found:
        state = list(wide(*state))
        wanted.append(int(state[0]))
    assert found == wanted
    assert len(set(found)) > 3
    assert plans(session) == 1
    # the word, and what was found of indices: of both embeddings and of four caches
    assert all(each == {"uploaded": 0, "copied": 8 + 8 * 6} for each in counts[1:])


def test_caches_that_grow_are_planned_once_for_each_length(tmp_path: Path) -> None:
    """When a length comes again nothing is planned or uploaded; the host reads what it
    asks for, the scores, and what was found of indices."""
    session = onnxplug.InferenceSession(
        export_small("gpt2-decode", tmp_path).model, providers=EPS
    )
    word, *caches = session.get_inputs()
    made, counts = [], []
    with counted() as copied:
        for _ in range(2):
            empty = np.zeros((1, 2, 0, 8), np.float32)
            values = [on_device([[3]]), *(on_device(empty) for _ in caches)]
            for _ in range(LENGTHS):
                before = dict(copied)
                binding = session.io_binding()
                for arg, value in zip((word, *caches), values, strict=True):
                    binding.bind_ortvalue_input(arg.name, value)
                for arg in session.get_outputs():
                    binding.bind_output(arg.name, "webgpu")
                session.run_with_iobinding(binding)
                scores, *kept = binding.get_outputs()
                scores.numpy()
                values = [values[0], *kept]
                made.append(plans(session))
                counts.append({name: copied[name] - before[name] for name in copied})
    assert made == [*range(1, LENGTHS + 1), *[LENGTHS] * LENGTHS]
    wanted = {"uploaded": 0, "copied": scores.numpy().nbytes + 8}
    assert all(each == wanted for each in counts[LENGTHS:])
