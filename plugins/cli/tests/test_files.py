"""Files on the command line that are none, or damaged: never a wait or a crash."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="about files of POSIX")

IMAGE_MODEL = {"x": [1, 3, 4, 4]}


@pytest.fixture
def run(cli, toy):
    """Runs a command on a model and the toy EP; ``run`` by default."""

    def run(model: object, *argv: object, command: str = "run"):
        return cli(command, model, *argv, "--ep", toy)

    return run


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".png"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_regular_file_is_not_read(
    run, save_model, tmp_path: Path, suffix: str, kind: str
) -> None:
    path = tmp_path / f"feed{suffix}"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    outcome = run(save_model(inputs=IMAGE_MODEL), path)
    assert outcome.code == 1
    assert f"it is a {kind}; expected a regular file" in outcome.err
    assert str(path) in outcome.err


@pytest.mark.parametrize("command", ["run", "bench", "explain"])
def test_a_pipe_is_no_model(run, tmp_path: Path, command: str) -> None:
    os.mkfifo(tmp_path / "m.onnx")
    outcome = run(tmp_path / "m.onnx", command=command)
    assert outcome.code == 1
    assert "it is a pipe; expected a regular file" in outcome.err


def test_labels_are_read_from_regular_files(run, save_model) -> None:
    outcome = run(save_model(), "random", "--labels", "/dev/zero")
    assert outcome.code == 1
    assert "it is a device" in outcome.err


def array(shape: str) -> bytes:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


def archive(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as members:
        members.writestr("x.npy", content)
    return file.getvalue()


@pytest.mark.parametrize(
    "shape", ["(1 << 60,)", "(1152921504606846976,)", "(10**30,)", "(-1,)", "(9" * 4000]
)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_shape_that_a_file_only_claims_is_refused(
    run, save_model, tmp_path: Path, suffix: str, shape: str
) -> None:
    path = tmp_path / f"feed{suffix}"
    path.write_bytes(array(shape) if suffix == ".npy" else archive(array(shape)))
    outcome = run(save_model(inputs=IMAGE_MODEL), path)
    assert outcome.code == 1
    assert f"cannot read {path}: " in outcome.err


def test_damaged_archives_are_refused(run, save_model, tmp_path: Path) -> None:
    file = io.BytesIO()
    np.save(file, np.ones((1, 3, 4, 4), np.float32))
    whole = archive(file.getvalue())
    model = save_model(inputs=IMAGE_MODEL)
    path = tmp_path / "feed.npz"
    for place in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 0x41
        path.write_bytes(damaged)
        outcome = run(model, path)
        assert outcome.code in (0, 1, 2)
        assert "Traceback" not in outcome.err


def test_damaged_pictures_are_refused(run, save_model, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "feed.png"
    image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(path)
    whole = path.read_bytes()
    model = save_model(inputs=IMAGE_MODEL)
    for place in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[place] ^= 0x41
        path.write_bytes(damaged)
        outcome = run(model, path)
        assert outcome.code in (0, 1)
        assert outcome.code == 0 or f"cannot read {path}: " in outcome.err
    path.write_bytes(b"no picture")
    assert "no picture that pillow knows" in run(model, path).err
