"""Tiles of bytes are tried before they are used, and left where they are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from onnxplug.authoring.entries import Cache
from onnxplug_cpu.compiler import trial_of_bytes as trial
from onnxplug_cpu.compiler.codegen.tile_registers import EmulatedTiles
from onnxplug_cpu.compiler.machine.isa import AVX512
from onnxplug_cpu.compiler.runtime.jit import Library

from . import tiled
from .interpreter import ISAS
from .lowered import lowered
from .test_integer_products import of_one_node

TILES = AVX512._replace(features=f"{AVX512.features},+amx-int8", tiles="emulated")

pytestmark = pytest.mark.skipif(AVX512 not in ISAS, reason="needs AVX-512")


@pytest.fixture(autouse=True)
def _host() -> Iterator[None]:
    with tiled.host(TILES), mock.patch.object(trial, "tried", {}):
        yield


def test_the_trial_succeeds_and_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    assert trial.multiplies_bytes_well(Library(TILES, Cache("onnxplug-cpu", limit=0)))
    assert not caplog.records


@pytest.mark.parametrize("wrong", [True, False])
def test_what_is_wrong_is_told_and_not_used(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    wrong: bool,
) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path))
    multiply = EmulatedTiles.multiply_bytes

    def spied(self: EmulatedTiles, *tiles: int, signed: bool) -> None:
        multiply(self, *tiles, signed=signed != wrong)

    monkeypatch.setattr(EmulatedTiles, "multiply_bytes", spied)
    rng = np.random.default_rng(2)
    x = rng.integers(0, 256, (40, 70), np.uint8)
    w = rng.integers(-60, 60, (70, 33), np.int8)
    model = of_one_node("MatMulInteger", {"x": x}, {"w": w}, "x,w", np.int32)
    for _ in range(2):  # the second has the plan from disk
        (found,) = lowered(model, threads=1).session.run(None, {"x": x})
        np.testing.assert_array_equal(found, x.astype(np.int64) @ w)
    messages = [record.message for record in caplog.records]
    told = [each for each in messages if "agree on a product of uint8" in each]
    assert len(told) == wrong
