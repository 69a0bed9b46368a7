"""What ``onnxplug doctor`` and ``eps`` tell of the on-device check."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxplug.ep import DataType, DeviceType, Probe
from onnxplug_testing import Knobs, SimulatedFactory

SIMULATED = "SimulatedExecutionProvider"


def probe(op: str) -> Probe:
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        agraph (float[2, 2] x) => (float[2, 2] y) {{ y = {op} (x, x) }}"""
    )
    return Probe(
        family=op.lower(),
        operators=frozenset({("", op, DataType.FLOAT32)}),
        model=model.SerializeToString(),
        inputs={"x": np.ones((2, 2), np.float32)},
        tolerance=(1e-5, 0),
    )


@pytest.fixture
def made(register, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes a simulated EP known: ``made(**knobs)``."""
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("onnxplug.verify.check.SECONDS", 60)

    def make(**knobs: Any) -> SimulatedFactory:
        factory = SimulatedFactory(Knobs(**knobs))
        register(factory)
        return factory

    return make


def wrong(a: Any, b: Any) -> Any:
    return a - b


def words(text: str) -> str:
    return " ".join(text.split())


def test_eps_tells_who_tried_it_and_runs_nothing(cli, made) -> None:
    factory = made(probes=[probe("Add")])
    factory.tried_on = {DeviceType.GPU: "a GPU of theirs"}
    text = words(cli("eps", "simulated").out)
    assert "it never ran on a device of the kind npu in its makers' hands" in text
    assert "family 'add' unverified: not run on this device so far" in text
    factory.tried_on = {DeviceType.NPU: "two NPUs"}
    (device,) = cli("eps", "simulated", "--json").json["eps"][0]["devices"]
    assert device["tried_on"] == "two NPUs"
    assert device["families"] == [
        {
            "family": "add",
            "verdict": "unverified",
            "detail": "not run on this device so far",
        }
    ]
    assert not factory.created
    factory.tried_on = None
    assert "makers" not in cli("eps", "simulated").out


def test_verify_tells_of_each_family(cli, made) -> None:
    factory = made(
        kernels={"Add": wrong}, probes=[probe("Add"), probe("MatMul"), probe("Mod")]
    )
    factory.tried_on = {}
    outcome = cli("doctor", "--verify", "simulated")
    assert outcome.code == 1 and outcome.err == ""
    title, trial, header, *rows = outcome.out.splitlines()
    assert title == f"{SIMULATED} 0.1.0 on npu simulated npu 0"
    assert trial.startswith("it never ran on a device of the kind npu")
    assert header.split() == ["FAMILY", "VERDICT", "TIME", "DETAIL"]
    text = words(" ".join(rows))
    assert "add failed" in text and "4 of 4 elements of 'y' are wrong" in text
    assert "matmul passed" in text
    assert "mod unverified" in text and "does not claim it" in text
    # which is what is known from now on
    eps = words(cli("eps", "simulated").out)
    assert "1 of 3 families passed the check" in eps
    assert "family 'add' failed: 4 of 4 elements" in eps


def test_verify_as_json(cli, made) -> None:
    made(probes=[probe("Add")])
    outcome = cli("doctor", "--verify", "simulated", "--json")
    assert outcome.code == 0
    found = outcome.json
    (device,) = found.pop("devices")
    assert found == {"ep": SIMULATED, "version": "0.1.0"}
    assert device["device"]["type"] == "npu" and device["tried_on"] is None
    (family,) = device["families"]
    assert family.pop("seconds") > 0
    assert family == {
        "family": "add",
        "operators": [["", "Add", "float32"]],
        "verdict": "passed",
        "detail": "",
    }


def test_verify_has_no_limit_of_time(cli, made, monkeypatch) -> None:
    import time

    monkeypatch.setattr("onnxplug.verify.check.SECONDS", 0.1)

    def slow(a: Any, b: Any) -> Any:
        time.sleep(0.2)
        return a + b

    made(kernels={"Add": slow}, probes=[probe("Add")])
    found = cli("doctor", "--json").json["plugins"]
    (plugin,) = (each for each in found if each["ep"] == SIMULATED)
    (family,) = plugin["devices"][0]["families"]
    assert family["verdict"] == "unverified"
    assert "took longer than the 0.1 s" in family["detail"]
    assert cli("doctor", "--verify", "simulated").code == 0
    assert "1 of 1 families passed" in words(cli("eps", "simulated").out)


def test_an_ep_without_probes_or_devices(cli, made) -> None:
    made()
    outcome = cli("doctor", "--verify", "simulated")
    assert outcome.code == 0 and "It has no probes" in outcome.out
    made(name="NoneExecutionProvider", device_count=0)
    outcome = cli("doctor", "--verify", "none")
    assert outcome.code == 1 and "drives none of this machine's" in outcome.err


def test_verify_is_not_isolated(cli, made) -> None:
    made()
    for option in ("--isolate", "--timeout=3"):
        outcome = cli("doctor", "--verify", "simulated", option)
        assert outcome.code == 2 and "leave out" in outcome.err


def test_the_doctor_has_a_problem_with_a_family_that_failed(cli, made) -> None:
    factory = made(kernels={"Add": wrong}, probes=[probe("Add")])
    factory.tried_on = {}
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        outcome = cli("doctor")
    assert outcome.code == 1
    assert "was checked against the CPU EP" in outcome.err
    text = words(outcome.out)
    assert f"{SIMULATED}: families failed on this machine: add" in text
    assert "family 'add' failed: 4 of 4 elements of 'y' are wrong" in text
    assert "→ onnxplug doctor --verify simulated" in text
    assert "warning: it never ran on a device of the kind npu" in text
