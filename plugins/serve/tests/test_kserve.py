"""The clients of the public ``kserve`` package run against the server as they are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trustme

import onnxplug_serve

PROGRAM = Path(__file__).with_name("kserve_program.py")


def _run(*words: Any) -> dict[str, Any]:
    found = subprocess.run(
        [sys.executable, str(PROGRAM), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr[-4000:]
    told: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return told


def _layer() -> Any:
    x = np.arange(8, dtype=np.float64).reshape(2, 4) / 8
    weights = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    return np.tanh(x @ weights)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_its_clients_are_answered(served, protocol: str) -> None:
    told = _run(protocol, getattr(served, protocol))
    assert told["health"] == [True, True, True]
    for kind in ("binary", "plain"):
        layer = told[f"layer, {kind}"]
        assert layer["id"] == "42"
        np.testing.assert_allclose(layer["y"], _layer(), rtol=1e-5, atol=1e-6)
        assert told[f"texts, {kind}"] == ["x", "ü字"]
    assert len(told["every"]) == 12
    assert all(value == [[1, 0]] for value in told["every"].values())
    assert "there is no model 'nothing'" in told["no model"]
    assert "the model has no input 'z'" in told["no input"]
    codes = {"http": ("404", "400"), "grpc": ("NOT_FOUND", "INVALID_ARGUMENT")}
    for name, code in zip(("no model", "no input"), codes[protocol], strict=True):
        assert code in told[name].partition(":")[0]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_its_clients_are_answered_behind_tls(
    folder, start, tmp_path: Path, protocol: str
) -> None:
    authority = trustme.CA()
    made = authority.issue_cert("localhost", "127.0.0.1")
    for blob, name in (
        (made.private_key_pem, "key"),
        (made.cert_chain_pems[0], "certificate"),
        (authority.cert_pem, "authority"),
    ):
        blob.write_to_path(tmp_path / name)
    settings = onnxplug_serve.Settings(
        models={"layer": folder / "layer.onnx"},
        certificate=tmp_path / "certificate",
        key=tmp_path / "key",
        token="secret",
    )
    with start(settings) as served:
        address = getattr(served, protocol)
        told = _run(protocol, address, tmp_path / "authority", "secret")
        assert told["health"] == [True, True, True]
        layer = told["layer, binary"]
        np.testing.assert_allclose(layer["y"], _layer(), rtol=1e-5, atol=1e-6)
        assert "the model has no input 'z'" in told["no input"]
