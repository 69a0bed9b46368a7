"""Compiled programs touch nothing but their buffers, and whoever does is caught."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
FOLDER = "plugins.cpu.tests.compiler"
MODULE = f"{FOLDER}.guarded"

pytestmark = pytest.mark.skipif("sys.platform != 'linux'")

SABOTAGE = f"""
import ctypes, os, signal, sys
import numpy as np
from {MODULE} import Fence, GuardedArenas, TouchedOutside

def end_of(touch, at_end, size, outside):
    child = os.fork()
    if not child:
        try:
            touch(at_end, size, 0 if outside else (-4 if at_end else 4))
        except TouchedOutside:
            os._exit(3)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def array(at_end, size, shift):
    with Fence(at_end=at_end):
        x = np.zeros(size // 4, np.float32)
        beside = x.ctypes.data + (size if at_end else -4)
        ctypes.memset(beside + shift, 1, 4)

def temporary(at_end, size, shift):
    arenas = GuardedArenas(at_end=at_end)
    (first, second), nbytes = arenas.place([size, 64], [(0, 1), (0, 1)])
    assert first % 64 == second % 64 == 0
    block = arenas.acquire(nbytes)
    beside = block.address + first + (size if at_end else -4)
    ctypes.memset(beside + shift, 1, 4)
    arenas.release(block)

def packed(at_end, size, shift):
    arenas = GuardedArenas(at_end=at_end)
    first, second = arenas.blocks([size, 64])
    ctypes.memset(first.address + (size if at_end else -4) + shift, 1, 4)
    arenas.check()

for at_end in (True, False):
    for size in (4, 12, 64, 100, 4096, 6000):
        for touch in (array, temporary, packed):
            assert end_of(touch, at_end, size, False) == 0
            # what aligns a buffer is looked at later
            later = touch is not array and at_end and size % 64
            expected = 3 if later else -signal.SIGSEGV
            found = end_of(touch, at_end, size, True)
            assert found == expected, (touch, at_end, size, found)
"""


def ran(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["", *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[-3000:]


def test_a_touch_beside_a_buffer_is_caught() -> None:
    ran("-c", SABOTAGE)


@pytest.mark.parametrize(
    ("module", "seeds"),
    [
        pytest.param(f"{FOLDER}.{what}", seeds, marks=marks)
        for what, sample, every in (
            ("guarded", "0:3", "0:8"),
            ("guarded_windows", "0:6", "0:36"),
            ("guarded_pools", "0:4", "0:24"),
            ("guarded_winograd", "0:3", "0:20"),
            ("guarded_narrow", "0:3", "0:24"),
            ("guarded_codes", "0:28", "0:60"),
            ("guarded_decoding", "0:4", "0:90"),
        )
        for seeds, marks in ((sample, ()), (every, pytest.mark.exhaustive))
    ],
)
def test_programs_stay_within_their_buffers(module: str, seeds: str) -> None:
    """Random graphs; contractions of windows; pools and depthwise convolutions;
    convolutions by transforms; weights and graphs of 16 bits; products of codes;
    weights of few bits and caches."""
    ran("-X", "faulthandler", "-m", module, seeds)
