"""Counts the ONNX backend suite's cases through the WebGPU EP.

    python tools/run_suite.py [--jobs N] [--every N] [--json FILE] [CASE …]

It ends with 1 where the CPU EP passes a case that does not pass with the EP before it,
or that the EP takes wholly and does not pass.
"""

from __future__ import annotations

import sys

from onnxplug_testing.backend_suite import Lineup
from onnxplug_testing.suite_command import main

if __name__ == "__main__":
    sys.exit(main(__doc__, Lineup("WebGpuExecutionProvider", {})))
