"""``policy="max_performance"`` goes by what was measured on this machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug import ep
from onnxplug.authoring.entries import Cache
from onnxplug.calibration import calibrate, measure, store, use
from onnxplug.calibration.plan import Plan, Share
from onnxplug.calibration.process import SessionProcess
from onnxplug.calibration.verdict import Verdict
from onnxplug.errors import EpError, EpWarning, OptionError, OptionWarning
from onnxplug.plugins import registry
from onnxplug_testing import Knobs, SimulatedPlugin

from . import timed_eps

CPU = "CPUExecutionProvider"
LIBRARY = str(Path(timed_eps.__file__))

Known = Callable[..., None]


def model(convs: int = 2, products: int = 2, size: int = 4) -> bytes:
    """Convolutions of 1 × 1 elements, and products behind them."""
    rng = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for op, count, shape in (
        ("Conv", convs, (size, size, 1, 1)),
        ("MatMul", products, (size, size)),
    ):
        for number in range(count):
            weight = rng.standard_normal(shape).astype(np.float32) / size
            weights.append(numpy_helper.from_array(weight, f"{op}{number}.w"))
            name = f"{op}{number}"
            nodes.append(helper.make_node(op, [last, weights[-1].name], [name]))
            nodes.append(helper.make_node("Relu", [name], [f"{name}.r"]))
            last = f"{name}.r"
    ends = [
        helper.make_tensor_value_info(name, 1, [1, size, size, size])
        for name in ("x", last)
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", 17)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(made.SerializeToString())


X = np.random.default_rng(1).standard_normal((1, 4, 4, 4)).astype(np.float32)


def expected(content: bytes) -> Any:
    return ReferenceEvaluator(onnx.load_from_string(content)).run(None, {"x": X})[0]


@pytest.fixture
def known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., None]]:
    """Makes EPs of the library known, beside the CPU EP, and no others."""
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "cache"))
    records = {each.name: each for each in registry.records() if each.name == CPU}
    monkeypatch.setattr(registry.table, "_records", dict(records))

    def register(*behaviours: str) -> None:
        monkeypatch.setenv("TIMED_EPS", ",".join(behaviours))
        registry.register_ep_library("timed", LIBRARY)

    yield register
    # its records go with the patch
    for record in registry.libraries():
        registry.unregister_ep_library(record.name)


def options(**entries: str) -> onnxplug.SessionOptions:
    made = onnxplug.SessionOptions()
    for key, value in entries.items():
        made.add_session_config_entry(f"session.{key}", value)
    return made


def session(content: bytes, **entries: str) -> onnxplug.InferenceSession:
    return onnxplug.InferenceSession(
        content, options(**entries), policy="max_performance"
    )


def found(verdict: Verdict) -> dict[str, Any]:
    """What was measured of each EP by itself, by what it does."""
    return {
        each.plan.first.removesuffix("ExecutionProvider"): each
        for each in verdict.measured
        if not each.plan.is_mixed
    }


# What is chosen...


def test_a_session_may_measure_and_others_go_by_it(known: Known) -> None:
    known("Slow")
    content = model(2, 0)
    with session(content) as before:
        assert before.get_providers()[0] == "SlowExecutionProvider"
        assert "static rule, as nothing was measured" in before.explain().calibration
    with session(content, calibrate="1") as measured:
        assert measured.get_providers() == [CPU]
        told = measured.explain().calibration
        assert "SlowExecutionProvider" in told and f"{CPU} " in told
        (result,) = measured.run(None, {"x": X})
        np.testing.assert_allclose(result, expected(content), rtol=1e-5, atol=1e-6)
    with session(content) as after:
        assert after.get_providers() == [CPU]
        assert after.explain().calibration == told
        assert f"chosen by {told}" in str(after.explain())
        assert after.explain().to_dict()["calibration"] == told
    # of other threads, and of another model, nothing is known
    other = options()
    other.intra_op_num_threads = 3
    with onnxplug.InferenceSession(content, other, policy="max_performance") as three:
        assert "static rule" in three.explain().calibration
    with session(model(1, 0)) as another:
        assert "static rule" in another.explain().calibration
    # nor does another policy ask
    with onnxplug.InferenceSession(content, policy="prefer_gpu") as preferred:
        assert preferred.get_providers()[0] == "SlowExecutionProvider"
        assert preferred.explain().calibration == ""


def test_eps_that_fail_hang_die_or_disagree_are_not_chosen(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    known("Dying", "Hanging", "Idle", "Raising", "Wrong")

    def process(request: Any, feed: Any, libraries: Any, timeout: float, check: Any):
        hangs = request.providers[0].name.startswith("Hanging")
        return SessionProcess(request, feed, libraries, 4 if hangs else timeout, check)

    monkeypatch.setattr(measure, "SessionProcess", process)
    with pytest.warns(EpWarning, match="Wrong.* gives other results than CPU"):
        verdict = onnxplug.calibrate(model(2, 0), seconds=0.1, timeout=120)
    assert (verdict.kept, verdict.chosen.first) == ("", CPU)
    by = found(verdict)
    assert "exit code 7 while its session was made" in by["Dying"].failure
    assert "more than 4 s while its session was made" in by["Hanging"].failure
    assert "runs no node" in by["Idle"].failure
    assert "it does not want 2 arrays" in by["Raising"].failure
    assert "elements of" in by["Wrong"].difference
    assert not by["Wrong"].is_usable
    assert Verdict.from_bytes(verdict.to_bytes()) == verdict


def test_parts_are_placed_apart_where_that_is_faster(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    known("SlowConv", "SlowProduct")
    monkeypatch.delitem(registry.table._records, CPU)
    content, entries = model(2, 2), {"disable_cpu_ep_fallback": "1"}
    verdict = onnxplug.calibrate(content, options(**entries), seconds=0.2)
    assert verdict.chosen.is_mixed, str(verdict)
    best = verdict.of(verdict.chosen)
    assert best is not None and best.median < timed_eps.PAUSE
    assert all(each.median > timed_eps.PAUSE for each in found(verdict).values())
    with session(content, **entries) as mixed:
        placed = {node.op_type: node.ep for node in mixed.explain().nodes}
        assert placed["Conv"] == "SlowProductExecutionProvider"
        assert placed["MatMul"] == "SlowConvExecutionProvider"
        assert "measured to be faster elsewhere" in str(mixed.explain())
        (result,) = mixed.run(None, {"x": X})
        np.testing.assert_allclose(result, expected(content), rtol=1e-5, atol=1e-6)
        (tap,) = mixed.run(["Conv0"], {"x": X})
        assert tap.shape == (1, 4, 4, 4)


def test_no_ep_that_works_is_an_error_and_a_warning_of_a_session(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*arguments: Any, **named: Any) -> Verdict:
        raise measure.NothingUsable("all failed")

    known("Slow")
    for place in (use, calibrate):
        monkeypatch.setattr(place, "measure", failing)
    with pytest.raises(EpError, match="no EP can run the model: all failed"):
        onnxplug.calibrate(model(1, 0))
    with pytest.warns(EpWarning, match="all failed.*static rule chooses"):
        made = session(model(1, 0), calibrate="1")
    with made:
        assert made.get_providers()[0] == "SlowExecutionProvider"


# What is kept...


def test_a_damaged_verdict_is_none(known: Known, tmp_path: Path) -> None:
    known("Slow")
    content = model(1, 0)
    slow, cpu = "SlowExecutionProvider", CPU
    verdict = Verdict(
        Plan((Share(cpu),)), Plan((Share(slow), Share(cpu))), (), {}, "2026-11-27"
    )
    subject = calibrate.subject_of(content, None)
    assert store.store(subject.entry, verdict) == ""
    with session(content) as good:
        assert good.get_providers() == [CPU]
    (path,) = (tmp_path / "cache").rglob("calibration-*.entry")
    whole = path.read_bytes()
    for damaged in (b"", whole[:20], whole[:-1], whole[:-3] + b"xyz", whole + b"x"):
        path.write_bytes(damaged)
        assert store.load(subject.entry) is None
        with session(content) as made:
            assert "static rule" in made.explain().calibration
    for text in (
        b"[]",
        b"{",
        b"null",
        b'{"chosen": []}',
        verdict.to_bytes().replace(b'["Slow', b'[7, "Slow'),
        verdict.to_bytes().replace(b'"chosen": [["CPU', b'"chosen": [[["CPU'),
    ):
        Cache("onnxplug").store(subject.entry, text)
        assert store.load(subject.entry) is None
    assert store.store(subject.entry, verdict) == ""
    assert store.load(subject.entry) == verdict


CALIBRATES = """
import sys, onnxplug
from onnxplug.plugins import registry
keep = "CPUExecutionProvider"
records = {each.name: each for each in registry.records() if each.name == keep}
registry.table._records = records
onnxplug.register_ep_library("timed", sys.argv[1])
print(onnxplug.calibrate(sys.argv[2], seconds=0.1).chosen.first)
"""


def test_two_processes_measure_at_once(known: Known, tmp_path: Path) -> None:
    known("Slow")
    path = tmp_path / "model.onnx"
    path.write_bytes(model(1, 0))
    command = [sys.executable, "-c", CALIBRATES, LIBRARY, str(path)]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for process in processes:
        out, _ = process.communicate(timeout=120)
        assert (process.returncode, out.strip()) == (0, CPU)
    with onnxplug.InferenceSession(path, policy="max_performance") as after:
        assert after.get_providers() == [CPU]
        assert "measured" in after.explain().calibration


# What cannot be...


def test_arguments_are_checked(known: Known) -> None:
    known("Slow")
    content = model(1, 0)
    with pytest.raises(OptionError, match="seconds is 0; expected a number above 0"):
        onnxplug.calibrate(content, seconds=0)
    with pytest.raises(OptionError, match="timeout is inf"):
        onnxplug.calibrate(content, timeout=float("inf"))
    with pytest.raises(OptionError, match="no input 'y'; it has x"):
        onnxplug.calibrate(content, inputs={"y": X})
    chosen = onnxplug.SessionOptions()
    chosen.set_provider_selection_policy("prefer_npu")
    with pytest.raises(OptionError, match="another policy"):
        onnxplug.calibrate(content, chosen)
    with pytest.raises(OptionError, match=r"expected '0' or '1'"):
        options(calibrate="yes")


def test_an_entry_that_has_no_effect_is_warned_of(known: Known) -> None:
    known("Slow")
    with pytest.warns(OptionWarning, match="'session.calibrate' has no effect"):
        onnxplug.InferenceSession(model(1, 0), options(calibrate="1")).close()


def test_what_another_process_cannot_have_is_said(known: Known) -> None:
    known("Slow")
    knobs = Knobs(name="MineExecutionProvider", device_type=ep.DeviceType.CPU)
    registry.register_ep_library("mine", SimulatedPlugin(knobs))
    with pytest.raises(OptionError, match="'mine' is an object of this process"):
        onnxplug.calibrate(model(1, 0))
    with pytest.warns(EpWarning, match="object of this process.*static rule"):
        made = session(model(1, 0), calibrate="1")
    made.close()
    registry.unregister_ep_library("mine")


def test_inputs_of_which_nothing_can_be_drawn_are_to_be_given(known: Known) -> None:
    known("Slow")
    text = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
        g (string[2] s) => (string[2] t) { t = Identity (s) }"""
    ).SerializeToString()
    with pytest.raises(OptionError, match=r"input .s. .* give one in inputs="):
        onnxplug.calibrate(text)


# Real engines...

OPENVINO = "OpenVINOExecutionProvider"


class Network(NamedTuple):
    """A network, by how many layers it has that OpenVINO and that the CPU EP is good
    at: convolutions of few channels a group, and those of an encoder."""

    convs: int
    layers: int


def exported(network: Network, path: Path) -> onnxplug.SessionOptions:
    """Writes it as torch exports it, and gives options for one thread."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    nn = torch.nn
    parts: list[Any] = []
    for _ in range(network.convs):
        conv = nn.Conv2d(64, 64, 5, padding=8, dilation=4, groups=16)
        parts += [conv, nn.ReLU()]
    if network.layers:
        # a picture becomes a row of 64 words
        parts += [nn.Conv2d(64, 256, 8, stride=8), nn.Flatten(2), swapped(nn)]
    for _ in range(network.layers):
        parts.append(
            nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, dropout=0.0)
        )
    x = torch.randn(1, 64, 64, 64)
    model = nn.Sequential(*parts).eval()
    torch.onnx.export(model, (x,), str(path), dynamo=False, opset_version=17)
    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = 1
    return options


def swapped(nn: Any) -> Any:
    """Words before their numbers."""

    class Module(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.transpose(1, 2)

    return Module()


@pytest.fixture
def engines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[Network], tuple[Verdict, Any]]:
    """Calibrates a network for the CPU EP and OpenVINO; makes a session by that."""
    pytest.importorskip("openvino")
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "cache"))
    wanted = (CPU, OPENVINO)
    records = {each.name: each for each in registry.records() if each.name in wanted}
    if OPENVINO not in records:
        pytest.skip("the OpenVINO EP is not installed")
    monkeypatch.setattr(registry.table, "_records", records)

    def run(network: Network) -> tuple[Verdict, Any]:
        path = tmp_path / "network.onnx"
        options = exported(network, path)
        verdict = onnxplug.calibrate(path, options, seconds=0.4)
        made = onnxplug.InferenceSession(path, options, policy="max_performance")
        return verdict, made

    return run


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
@pytest.mark.parametrize(
    ("network", "faster"), [(Network(2, 0), OPENVINO), (Network(0, 3), CPU)]
)
def test_the_faster_engine_is_chosen(engines, network: Network, faster: str) -> None:
    verdict, made = engines(network)
    assert verdict.chosen.first == faster, str(verdict)
    with made:
        assert made.get_providers()[0] == faster


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
def test_each_engine_has_the_part_that_it_is_faster_at(engines) -> None:
    verdict, made = engines(Network(3, 8))
    assert verdict.chosen.is_mixed, str(verdict)
    with made:
        placed = [part.ep for part in made.explain().partitions]
        assert set(placed) == {CPU, OPENVINO}
        convs = {node.ep for node in made.explain().nodes if node.op_type == "Conv"}
        assert OPENVINO in convs
