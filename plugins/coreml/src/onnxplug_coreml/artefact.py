"""A built model with what has to be known to call it, in a folder and as bytes."""

from __future__ import annotations

import io
import json
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_coreml.lowering.program import Port, Program

_MANIFEST: Final = "manifest.json"
_MODEL: Final = "model"
_SIGN: Final = b"CoreMLExecutionProvider 1\n"
"""What bytes begin with: whose they are, and the version of what is behind it."""


class Signature(Record):
    """An input or output of a model.

    Attributes:
        name: the engine's.
        dtype: the engine's, which may be narrower than ONNX's.
    """

    name: str
    dtype: ep.DataType


class Manifest(Record):
    """What a model is called with.

    Attributes:
        model: the path of the model in its folder.
        inputs, outputs: in the order of the partition's.
        checks: values that have to be 0 in each run, with what is wrong otherwise.
        nodes: the position in the partition of the node that a value is made for, by
            the value's name.
    """

    model: str
    inputs: tuple[Signature, ...]
    outputs: tuple[Signature, ...]
    checks: tuple[tuple[str, str], ...]
    nodes: Mapping[str, int]


def describe_program(program: Program, model: str) -> Manifest:
    """The manifest of what was built of *program*, at *model* in its folder."""
    return Manifest(
        model,
        _of_ports(program.inputs),
        _of_ports(program.outputs),
        tuple((check.value.name, check.message) for check in program.checks),
        {
            value.name: operation.node
            for operation in program.operations
            for value in operation.outputs
        },
    )


def _of_ports(ports: Sequence[Port]) -> tuple[Signature, ...]:
    return tuple(Signature(port.value.name, port.value.dtype) for port in ports)


class Artefact:
    """A folder with a model and its manifest.

    Args:
        folder: with what :meth:`write` left; it is kept.  ``None``: a new one, deleted
            when it is closed or nobody has it any more.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._delete: Callable[[], Any] | None = None
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="onnxplug-coreml-"))
            self._delete = weakref.finalize(
                self, shutil.rmtree, folder, ignore_errors=True
            )
        self.folder: Final = folder

    def write(self, manifest: Manifest) -> None:
        """Complete the folder, which has the model already."""
        text = json.dumps(
            {
                _MODEL: manifest.model,
                "inputs": [(name, str(dtype)) for name, dtype in manifest.inputs],
                "outputs": [(name, str(dtype)) for name, dtype in manifest.outputs],
                "checks": manifest.checks,
                "nodes": dict(manifest.nodes),
            }
        )
        (self.folder / _MANIFEST).write_text(text, encoding="utf-8")

    def read(self) -> Manifest:
        """What :meth:`write` wrote.

        Raises:
            ValueError: it is damaged.
            OSError: it cannot be read.
        """
        try:
            tree = json.loads((self.folder / _MANIFEST).read_text(encoding="utf-8"))
            manifest = Manifest(
                str(tree[_MODEL]),
                _borders(tree["inputs"]),
                _borders(tree["outputs"]),
                tuple((str(name), str(text)) for name, text in tree["checks"]),
                {str(name): int(node) for name, node in tree["nodes"].items()},
            )
        except (AttributeError, KeyError, RecursionError, TypeError) as error:
            raise ValueError(f"its manifest is damaged: {error!r}") from error
        _require_inside(manifest.model)
        return manifest

    def pack(self) -> bytes:
        """All files, as an archive without compression, signed."""
        buffer = io.BytesIO()
        buffer.write(_SIGN)
        with zipfile.ZipFile(buffer, "a", zipfile.ZIP_STORED) as archive:
            for path in sorted(self.folder.rglob("*")):
                archive.write(path, path.relative_to(self.folder).as_posix())
        return buffer.getvalue()

    def unpack(self, data: memoryview) -> None:
        """Fill the folder, which is empty, with what :meth:`pack` gave.

        Nothing is written outside of the folder, nor more than *data* has.

        Raises:
            ValueError: *data* is no such archive.
            OSError: a file cannot be written.
        """
        if bytes(data[: len(_SIGN)]) != _SIGN:
            raise ValueError("it is no archive of a model, or one of another version")
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                members = archive.infolist()
                if sum(member.file_size for member in members) > len(data):
                    raise ValueError("its files are larger than it is")
                for member in members:
                    _require_inside(member.filename)
                    if member.compress_type != zipfile.ZIP_STORED:
                        raise ValueError(f"{member.filename!r} is compressed")
                    target = self.folder / member.filename
                    if member.is_dir():
                        target.mkdir(parents=True, exist_ok=True)
                        continue
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(member) as source, target.open("xb") as file:
                        shutil.copyfileobj(source, file)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            raise ValueError(f"it is no archive of a model: {error}") from error

    def close(self) -> None:
        """Delete the folder, if it is temporary."""
        if self._delete is not None:
            self._delete()


def _borders(rows: Any) -> tuple[Signature, ...]:
    return tuple(Signature(str(name), ep.DataType(dtype)) for name, dtype in rows)


def _require_inside(name: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise ValueError(f"{name!r} is outside of its folder")
