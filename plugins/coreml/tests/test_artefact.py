"""Models as bytes: what was packed comes out again, and hostile bytes do no harm."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest

from onnxplug.ep import DataType
from onnxplug_coreml.artefact import Artefact, Manifest, Signature

SIGN = b"CoreMLExecutionProvider 1\n"

MANIFEST = Manifest(
    "model/main",
    (Signature("x", DataType.INT32),),
    (Signature("y", DataType.FLOAT32),),
    (("wrong", "Gather: an index is out of bounds"),),
    {"y": 0},
)


def unpacked(data: bytes) -> Artefact:
    artefact = Artefact()
    artefact.unpack(memoryview(data))
    return artefact


def archive(compression: int = zipfile.ZIP_STORED, **files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, text in files.items():
            file.writestr(name.replace("__", "/").replace("UP", ".."), text)
    return SIGN + buffer.getvalue()


def test_what_was_packed_comes_out_again() -> None:
    made = Artefact()
    (made.folder / "model" / "weights").mkdir(parents=True)
    (made.folder / "model" / "weights" / "0.bin").write_bytes(bytes(range(256)))
    (made.folder / "model" / "empty").mkdir()
    made.write(MANIFEST)
    again = unpacked(made.pack())
    assert again.read() == MANIFEST
    assert (again.folder / "model/weights/0.bin").read_bytes() == bytes(range(256))
    assert (again.folder / "model/empty").is_dir()
    for artefact in (made, again):
        artefact.close()
        artefact.close()
        assert not artefact.folder.exists()


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "no archive"),
        (SIGN + b"PK\3\4 and so on", "no archive"),
        (b"PK\3\4 and so on", "another version"),
        (archive(model="xyz").replace(b" 1\n", b" 2\n", 1), "another version"),
        (archive(UP__outside="x"), "outside of its folder"),
        (archive(__etc__passwd="x"), "outside of its folder"),
        (archive(zipfile.ZIP_DEFLATED, model="x" * 10**6), "larger than it is"),
        (archive(zipfile.ZIP_DEFLATED, model="xyz"), "is compressed"),
    ],
)
def test_what_is_no_archive_of_ours_is_refused(data: bytes, match: str) -> None:
    artefact = Artefact()
    with pytest.raises(ValueError, match=match):
        artefact.unpack(memoryview(data))
    assert not list(artefact.folder.iterdir())


def test_damage_is_found() -> None:
    data = bytearray(archive(model="x" * 1000))
    data[data.index(b"x" * 1000) + 500] ^= 1
    with pytest.raises(ValueError, match="no archive of a model: Bad CRC"):
        unpacked(bytes(data))


def without(key: str) -> dict[str, object]:
    return {name: value for name, value in tree().items() if name != key}


def tree() -> dict[str, object]:
    return {
        "model": "main",
        "inputs": [["x", "int32"]],
        "outputs": [],
        "checks": [],
        "nodes": {},
    }


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[" * 100_000,
        "[]",
        *(json.dumps(without(key)) for key in tree()),
        json.dumps({**tree(), "model": "../../etc/passwd"}),
        json.dumps({**tree(), "inputs": [["x", "int1000"]]}),
        json.dumps({**tree(), "inputs": [["x"]]}),
        json.dumps({**tree(), "nodes": {"y": "one"}}),
        json.dumps({**tree(), "nodes": 3}),
    ],
    ids=lambda text: text[:40],
)
def test_a_manifest_that_is_wrong_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError):
        Artefact(tmp_path).read()
