"""Writes what reproduces a finding: a model, what it is fed, and a script."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug_testing.conformance.finding import Case, Finding

if TYPE_CHECKING:
    from onnxplug_testing.conformance.subject import Subject

_SCRIPT: Final = '''\
"""{what}

{sentence}
"""
import pathlib, ml_dtypes, numpy as np, onnxplug  # ml_dtypes: bfloat16 and the like

here, dtypes, options = pathlib.Path(__file__).parent, {dtypes!r}, {options!r}
# an EP that is not installed: onnxplug.register_ep_library("name", "its_file.py")
feeds = dict(np.load(here / "feeds.npz"))
feeds = {{name: a.view(dtypes.get(name, a.dtype)) for name, a in feeds.items()}}
for ep in [({ep!r}, options)], ["CPUExecutionProvider"]:
    session = onnxplug.InferenceSession(here / "model.onnx", providers=ep)
    print(ep, session.run(None, feeds), session.explain(), sep="\\n")
'''


def save(case: Case, folder: Path, finding: Finding, subject: Subject) -> Path:
    """Write ``model.onnx``, ``feeds.npz`` and ``reproduce.py``; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(case.model)
    dtypes = {}
    with zipfile.ZipFile(folder / "feeds.npz", "w") as archive:
        for name, value in case.feeds.items():
            array = np.asarray(value)
            if array.dtype.kind == "V":  # of ml_dtypes, which the format does not name
                dtypes[name] = array.dtype.name
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, _plain(array), allow_pickle=False)
    text = _SCRIPT.format(
        what=finding.what.replace("\\", "\\\\").replace('"""', "'''"),
        sentence=finding.sentence,
        dtypes=dtypes,
        options=dict(subject.options),
        ep=subject.name,
    )
    (folder / "reproduce.py").write_text(text, encoding="utf-8")
    return folder


def _plain(array: Any) -> Any:
    """*array* as numpy's format can hold it."""
    if array.dtype.kind == "O":
        return array.astype(np.str_)
    if array.dtype.kind == "V":
        return array.view(f"u{array.dtype.itemsize}")
    return array
