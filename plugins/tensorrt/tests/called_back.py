"""Has the real bindings call what the EP gives them, in a process that may crash.

    python called_back.py FOLDER

FOLDER is for libraries.  Prints what came of it as JSON.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
from pathlib import Path
from typing import Any

from onnxplug_tensorrt.callbacks import (
    SessionLog,
    messages_of,
    new_output_memory,
    new_progress,
)


def main(folder: Path) -> dict[str, Any]:
    path = Path(__file__).with_name("bindings.py")
    spec = importlib.util.spec_from_file_location("bindings", path)
    assert spec is not None and spec.loader is not None
    bindings = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bindings)
    tensorrt, logger = bindings.load(folder), logging.getLogger("test")
    call = tensorrt.init_libnvinfer_plugins

    messages, log = messages_of(tensorrt), SessionLog(logger)
    with messages.to(log):
        call(messages, "log")
    wanted = new_progress(tensorrt, logger, "it", lambda: False)
    unwanted = new_progress(tensorrt, logger, "it", lambda: True)
    interrupted = new_progress(tensorrt, logger, "it", lambda: 1 // 0)
    asked: list[int] = []

    def allocate(nbytes: int) -> int:
        asked.append(nbytes)
        return 4096

    memory = new_output_memory(tensorrt, allocate)
    failing = new_output_memory(tensorrt, lambda nbytes: 1 // 0)
    return {
        "said": log.taken(),
        "goes on": [
            bool(call(each, "progress")) for each in (wanted, unwanted, interrupted)
        ],
        "kept": type(interrupted.failure).__name__,
        "found": [bool(call(each, "memory")) for each in (memory, failing)],
        "asked": asked,
        "shape": memory.shape,
        "lacks": type(failing.failure).__name__,
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
