"""Writes arrays by name, as numpy's ``.npz``."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    """An .npz file, for any names: ``numpy.savez`` keeps some for its arguments."""
    import numpy as np

    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            if array.dtype.kind == "O":  # text of any length
                array = array.astype(np.str_)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
