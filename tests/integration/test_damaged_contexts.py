"""Compiled models that are damaged, swapped, or name files elsewhere: refused."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug.errors import ContextError, InvalidModel, OnnxplugError, UnassignedNode
from onnxplug_testing import Stage

from .compiled_models import (
    EP,
    FEED,
    ON_DEVICE,
    SANDWICH,
    change,
    compile_ahead,
    expected,
    save,
)

BLOB = f"c_{EP}.bin"
REMEDY = "compile the model anew, or copy the model and its files again"


@pytest.fixture
def target(simulated, tmp_path: Path) -> str:
    """A compiled model; from now on its EP must not be given anything."""
    simulated(ops=ON_DEVICE)
    (tmp_path / "c").mkdir()
    source = save(SANDWICH, tmp_path / "m.onnx")
    found = compile_ahead(source, tmp_path / "c" / "c.onnx")
    onnxplug.plugins.registry.remove(EP)
    simulated(ops=ON_DEVICE, fail_at=Stage.RESTORE)
    return found


def refusal(target: str, kind: type[Exception] = ContextError) -> str:
    """Why a session is refused, after all that names node, EP and remedy."""
    with pytest.raises(kind) as got:
        onnxplug.InferenceSession(target, providers=[EP])
    return str(got.value)


def test_a_blob_in_which_any_bit_is_another_is_refused(
    simulated, target: str, tmp_path: Path
) -> None:
    """Or restored as it was, where the bit is one of the padding."""
    onnxplug.plugins.registry.remove(EP)
    simulated(ops=ON_DEVICE)
    blob = tmp_path / "c" / BLOB
    whole = blob.read_bytes()
    wanted = expected(SANDWICH, FEED)
    places = [n for n, byte in enumerate(whole) if byte or n < 64]
    refused = 0
    for place in random.Random(1).sample(places, 60):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << random.Random(place).randrange(8)
        blob.write_bytes(damaged)
        try:
            with onnxplug.InferenceSession(target, providers=[EP]) as session:
                found = session.run(None, FEED)[0]
        except (ContextError, UnassignedNode) as error:
            assert EP in str(error)
            assert "compile the model anew, or copy the model" in str(error)
            refused += 1
        else:
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert refused == 60


def test_a_model_in_which_any_bit_is_another_ends_in_words(
    simulated, tmp_path: Path
) -> None:
    """Of what is in the model itself; whatever it computes, it does not end badly."""
    simulated(ops=ON_DEVICE)
    source = save(SANDWICH, tmp_path / "m.onnx")
    target = compile_ahead(source, tmp_path / "c.onnx", ep_context_embed_mode="1")
    whole = Path(target).read_bytes()
    chance = random.Random(2)
    places = [n for n, byte in enumerate(whole) if byte]
    for place in chance.sample(places, 60):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(8)
        try:
            with onnxplug.InferenceSession(bytes(damaged), providers=[EP]) as session:
                session.run(None, FEED)
        except OnnxplugError:
            pass


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda data: data[:-1], "is at bytes .* of 8"),
        (lambda data: data[:5000], "is at bytes"),
        (lambda data: data[:100], "its header is said to have"),
        (lambda data: data[:12], "does not begin as what onnxplug writes"),
        (lambda data: data + b"x", "1 bytes follow its end"),
        (lambda data: data + bytes(1 << 20), "1048576 bytes follow its end"),
        (
            lambda data: data[:4100] + b"1234" + data[4104:],
            "the checksum of its .* bytes is wrong",
        ),
    ],
)
def test_a_blob_that_is_not_whole_is_refused(
    target: str, tmp_path: Path, harm: Callable[[bytes], bytes], why: str
) -> None:
    blob = tmp_path / "c" / BLOB
    blob.write_bytes(harm(blob.read_bytes()))
    text = refusal(target)
    assert text.startswith(
        f"what {EP} compiled for com.microsoft.EPContext '{EP}_0', in '{BLOB}', is "
        "damaged: "
    )
    assert text.endswith(
        "; compile the model anew, or copy the model and its files again"
    )
    assert re.search(why, text), text


@pytest.mark.parametrize("content", [b"", b"x", b"RR_UPCVO" + bytes(100)])
def test_a_blob_of_somebody_elses_is_not_given_to_the_ep(
    target: str, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "c" / BLOB).write_bytes(content)
    text = refusal(target, UnassignedNode)
    assert "onnxplug did not write its ep_cache_context, or the first bytes" in text


def test_a_blob_of_another_model_is_noticed(
    simulated, target: str, tmp_path: Path
) -> None:
    other = SANDWICH.replace("4, 3, 2, 1", "4, 3, 2, 7")
    onnxplug.plugins.registry.remove(EP)
    simulated(ops=ON_DEVICE)
    save(other, tmp_path / "n.onnx")
    compile_ahead(str(tmp_path / "n.onnx"), tmp_path / "d.onnx")
    shutil.copy(tmp_path / f"d_{EP}.bin", tmp_path / "c" / BLOB)
    assert "that is of another model, or was compiled anew" in refusal(target)


def test_a_blob_that_is_missing_is_named(target: str, tmp_path: Path) -> None:
    (tmp_path / "c" / BLOB).unlink()
    text = refusal(target)
    assert f"what {EP} compiled for" in text
    assert f"is missing: there is no file '{tmp_path / 'c' / BLOB}'" in text
    assert "put the model's other files beside the model" in text


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("../m.bin", "only paths within the model's folder"),
        ("..\\m.bin", "only paths within the model's folder"),
        ("below/../../m.bin", "only paths within the model's folder"),
        ("/etc/passwd", "only paths within the model's folder"),
        ("C:\\m.bin", "only paths within the model's folder"),
        ("", "is not a path"),
        ("a\0b", "is not a path"),
        (".", "is the model's folder"),
        ("link", "outside the model's folder"),
        ("pipe", "cannot be read"),
        ("c.onnx/x", "cannot be read|is missing"),
    ],
)
def test_files_outside_the_models_folder_are_not_opened(
    target: str, tmp_path: Path, location: str, why: str
) -> None:
    shutil.copy(tmp_path / "c" / BLOB, tmp_path / "m.bin")
    (tmp_path / "c" / "link").symlink_to(tmp_path / "m.bin")
    os.mkfifo(tmp_path / "c" / "pipe")
    change(target, "ep_cache_context", location)
    text = refusal(target)
    assert re.search(why, text), text
    assert EP in text


def test_files_below_the_models_folder_are(
    simulated, target: str, tmp_path: Path
) -> None:
    onnxplug.plugins.registry.remove(EP)
    simulated(ops=ON_DEVICE)
    (tmp_path / "c" / "below").mkdir()
    shutil.move(tmp_path / "c" / BLOB, tmp_path / "c" / "below" / "b.bin")
    change(target, "ep_cache_context", "below/b.bin")
    with onnxplug.InferenceSession(target, providers=[EP]) as session:
        found = session.run(None, FEED)[0]
    np.testing.assert_allclose(found, expected(SANDWICH, FEED), rtol=1e-6)


def test_a_model_from_memory_has_no_files(target: str) -> None:
    with pytest.raises(ContextError, match="was not loaded from a path"):
        onnxplug.InferenceSession(Path(target).read_bytes(), providers=[EP])


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("source", 3, "attribute 'source' of type INT; expected STRING"),
        ("main_context", "1", "attribute 'main_context' of type STRING; expected INT"),
        ("embed_mode", 0.0, "attribute 'embed_mode' of type FLOAT; expected INT"),
        ("ep_cache_context", b"\xff\xfe", "that is no path"),
        ("partition_name", "other", "is 'other', which is not among what"),
        ("partition_name", None, "which is not among what"),
        ("main_context", 0, "leaves its bytes to another node"),
    ],
)
def test_attributes_that_say_nothing_are_refused(
    target: str, name: str, value: Any, why: str
) -> None:
    change(target, name, value)
    assert why in refusal(target)


def test_an_embedded_blob_that_is_text_is_somebody_elses(target: str) -> None:
    change(target, "embed_mode", 1)
    text = refusal(target, UnassignedNode)
    assert "onnxplug did not write its ep_cache_context" in text


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda node: node.input.append("x"), "with 1 inputs, and the node has 2"),
        (lambda node: node.output.pop(), "with 2 outputs, and the node has 1"),
    ],
)
def test_a_node_with_other_inputs_or_outputs_is_refused(
    target: str, harm: Callable[[Any], Any], why: str
) -> None:
    model = onnx.load(target)
    harm(next(n for n in model.graph.node if n.op_type == "EPContext"))
    if why.endswith("1"):
        model.graph.node[1].input[0] = "a"
    onnx.save(model, target)
    assert why in refusal(target)


def test_a_node_with_inputs_of_another_type_is_refused(target: str) -> None:
    model = onnx.load(target)
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    onnx.save(model, target)
    text = refusal(target, InvalidModel)
    assert "with input 'x' as ['float32', ['n', 3]], not ['float64', ['n', 3]]" in text


def test_what_became_constant_since_is_passed_all_the_same(
    simulated, target: str
) -> None:
    """An EP is given what it compiled its partition for, whatever that is now."""
    onnxplug.plugins.registry.remove(EP)
    simulated(ops=ON_DEVICE)
    model = onnx.load(target)
    del model.graph.input[:]
    model.graph.initializer.append(onnx.numpy_helper.from_array(FEED["x"], "x"))
    onnx.save(model, target)
    with onnxplug.InferenceSession(target, providers=[EP]) as session:
        found = session.run(None, {})[0]
    np.testing.assert_allclose(found, expected(SANDWICH, FEED), rtol=1e-6)
