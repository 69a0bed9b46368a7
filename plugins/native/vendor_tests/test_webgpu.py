"""WebGPU's library on an adapter: single operators, and small networks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from .webgpu import adapter_environment

CASES = 12


def test_what_it_computes_is_what_the_cpu_ep_does() -> None:
    """Within 1e-5, or refused with a reason; bound, from 4 threads, and unloaded."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", Path(__file__).with_name("on_webgpu.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        env=adapter_environment(),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == CASES
    for name, (distance, ran, refused) in found.items():
        assert distance <= 1e-5, name
        assert ran or refused, name
    assert sum(ran for _, ran, _ in found.values()) >= 30
