"""What becomes of a session when the files of its model change."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxplug
from onnxplug.errors import ModelError, OptionError

SIZE = 1 << 20
WEIGHTS = np.arange(SIZE, dtype=np.float32)
FEED = {"x": np.ones(SIZE, np.float32)}
READ = "session.use_memory_mapped_model"

posix = pytest.mark.skipif(os.name != "posix", reason="Windows keeps mapped files")


def save(path: Path, *, external: bool) -> None:
    weight = numpy_helper.from_array(WEIGHTS, "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [SIZE])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [SIZE])
    nodes = [
        helper.make_node("Add", ["x", "w"], ["sum"]),
        helper.make_node("Neg", ["sum"], ["y"]),
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], [weight]),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    onnx.save(model, path, save_as_external_data=external, location="w.bin")


@pytest.fixture(params=[False, True], ids=["within", "beside"])
def path(request, tmp_path: Path) -> Path:
    """A model with its weights in it, or beside it."""
    path = tmp_path / "m.onnx"
    save(path, external=request.param)
    return path


def reading() -> onnxplug.SessionOptions:
    options = onnxplug.SessionOptions()
    options.add_session_config_entry(READ, "0")
    return options


CHILD = """
import os, sys
import numpy as np
import onnxplug
path, mapped = sys.argv[1:]
options = onnxplug.SessionOptions()
options.add_session_config_entry("session.use_memory_mapped_model", mapped)
session = onnxplug.InferenceSession(path, options)
feed = {"x": np.ones(1 << 20, np.float32)}
for name in os.listdir(os.path.dirname(path)):
    os.truncate(os.path.join(os.path.dirname(path), name), 1)
for _ in range(2):
    (y,) = session.run(None, feed)
    assert np.array_equal(y, -1 - np.arange(1 << 20, dtype=np.float32))
"""


def in_a_child(path: Path, mapped: str) -> int:
    """The exit status of a process that cuts the files off and runs on."""
    command = [sys.executable, "-c", CHILD, str(path), mapped]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not child.stderr
    return child.returncode


@posix
def test_cutting_files_off_does_not_matter_once_they_are_read(path: Path) -> None:
    assert in_a_child(path, "0") == 0


@posix
def test_cutting_mapped_files_off_ends_the_process(tmp_path: Path) -> None:
    """As the reference of model files says; what is promised is no more."""
    save(tmp_path / "m.onnx", external=True)
    assert in_a_child(tmp_path / "m.onnx", "1") == -signal.SIGBUS


@posix
@pytest.mark.parametrize("is_read", [False, True])
def test_a_model_moved_over_the_files_leaves_a_session_alone(
    path: Path, tmp_path: Path, is_read: bool
) -> None:
    session = onnxplug.InferenceSession(path, reading() if is_read else None)
    for file in list(tmp_path.iterdir()):
        (tmp_path / "other").write_bytes(b"another model")
        os.replace(tmp_path / "other", file)
    assert np.array_equal(session.run(None, FEED)[0], -1 - WEIGHTS)


def test_a_session_is_never_of_two_models(path: Path, tmp_path: Path) -> None:
    session = onnxplug.InferenceSession(path, reading())
    assert np.array_equal(session.run(["sum"], FEED)[0], 1 + WEIGHTS)
    for file in list(tmp_path.iterdir()):
        os.utime(file, ns=(1, 1))
    # it has this variant already, and runs need no file
    session.run(["sum"], FEED)
    session.run(None, FEED)
    with pytest.raises(ModelError, match=r"not as it was .* create another session"):
        session.run(["sum", "w"], FEED)
    with pytest.raises(ModelError, match="create another session"):
        session.set_providers(["CPUExecutionProvider"])
    session.run(None, FEED)
    # one that is restored elsewhere is a new one
    restored = pickle.loads(pickle.dumps(session))
    assert np.array_equal(restored.run(["sum", "w"], FEED)[1], WEIGHTS)


def test_the_prepared_model_is_not_written_over_the_model(
    path: Path, tmp_path: Path
) -> None:
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    os.symlink(path, tmp_path / "link")
    for file in (*before, tmp_path / "link"):
        options = onnxplug.SessionOptions()
        options.optimized_model_filepath = str(file)
        with pytest.raises(OptionError, match="the same file; choose another"):
            onnxplug.InferenceSession(path, options)
    assert before == {file: file.read_bytes() for file in before}
    options.optimized_model_filepath = str(tmp_path / "prepared")
    onnxplug.InferenceSession(path, options)
    assert (tmp_path / "prepared").stat().st_size


def test_the_entry_takes_two_values() -> None:
    with pytest.raises(OptionError, match="expected '0' or '1'"):
        onnxplug.SessionOptions().add_session_config_entry(READ, "yes")
    assert onnxplug.SessionOptions().get_session_config_entry(READ) == "1"
    assert reading().get_session_config_entry(READ) == "0"
