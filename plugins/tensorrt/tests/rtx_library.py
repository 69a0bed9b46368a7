"""Has onnxplug-native host the library of TensorRT for RTX, in a process of its own.

    python rtx_library.py FOLDER

FOLDER has libraries in place of the driver's, whose functions fail.  Prints what the
library says of a GPU as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

import onnxplug
from onnxplug import ep
from onnxplug.plugins import registry

GPU = ep.HardwareDevice(
    type=ep.DeviceType.GPU,
    vendor="NVIDIA",
    vendor_id=0x10DE,
    metadata={"pci_bus_id": "0000:10:00.0", "Discrete": "1"},
)


def main(folder: Path) -> dict[str, Any]:
    libraries = Path(
        os.environ["ONNXPLUG_TENSORRT_RTX"], "onnxruntime_ep_nv_tensorrt_rtx"
    )
    for path in folder.glob("*.so.1"):
        ctypes.CDLL(str(path))
    for pattern in ("libcudart", "libtensorrt_rtx", "libtensorrt_onnxparser_rtx"):
        (path,) = libraries.glob(f"{pattern}.so.*")
        ctypes.CDLL(str(path))
    name = "rtx"
    library = libraries / "libonnxruntime_providers_nv_tensorrt_rtx.so"
    onnxplug.register_ep_library(name, str(library))
    registry.factory(name)
    (record,) = [each for each in registry.records() if each.name == name]
    (refused,) = record.factory.supported_devices([GPU])
    return {"vendor": record.factory.vendor, "reason": refused.reason}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
