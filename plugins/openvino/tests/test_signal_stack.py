"""Signals reach a program that used OpenVINO and released it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="OpenVINO replaces the stack of signals on Linux"
)

PROGRAM = """
import faulthandler, signal, sys, threading
from onnxplug_openvino.factory import OpenVINOFactory

enabled, ending = sys.argv[1:]
# a shell that runs something in the background has it ignore the signal
signal.signal(signal.SIGINT, signal.default_int_handler)
if enabled == "with a stack":
    faulthandler.enable()
first, second = OpenVINOFactory(), OpenVINOFactory()
for factory in first, second:
    list(factory.diagnose())
if ending == "in the order of making":
    first.close()
    second.close()
else:
    thread = threading.Thread(target=lambda: (second.close(), first.close()))
    thread.start()
    thread.join()
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("enabled", ["with a stack", "without one"])
@pytest.mark.parametrize("ending", ["in the order of making", "in another thread"])
def test_an_interrupt_arrives_after_the_engine_was_released(
    enabled: str, ending: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, enabled, ending],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr
