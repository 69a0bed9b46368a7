"""The on-device check: EPs that compute wrong are found out, once, and done without."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.authoring.kernels import KernelExecutionProvider
from onnxplug.ep import DataType, Probe, RefusalCode
from onnxplug.errors import EpWarning, OptionError, UnassignedNode
from onnxplug.plugins import PluginRegistry, registry
from onnxplug.plugins.find import find_plugins
from onnxplug.verify.check import known_verdicts
from onnxplug_testing import Knobs, SimulatedFactory

SIMULATED = "SimulatedExecutionProvider"
CPU = "CPUExecutionProvider"
X = np.array([[1, -2], [3, 0.5]], np.float32)

Verified = Callable[..., SimulatedFactory]


def model(body: str, *, inputs: str = "float[2, 2] x") -> bytes:
    text = f"""
        <ir_version: 10, opset_import: ["" : 21]>
        agraph ({inputs}) => (float[2, 2] y) {{ {body} }}
    """
    return onnx.parser.parse_model(text).SerializeToString()


def probe(op: str, body: str = "", **changes: Any) -> Probe:
    facts: dict[str, Any] = {
        "family": op.lower(),
        "operators": frozenset({("", op, DataType.FLOAT32)}),
        "model": model(body or f"y = {op} (x, x)"),
        "inputs": {"x": X},
        "tolerance": (1e-5, 1e-6),
    }
    return Probe(**facts | changes)


PROBES = (probe("Add"), probe("MatMul"))


def counted(function: Callable[..., Any], calls: list[Any]) -> Callable[..., Any]:
    def call(*arrays: Any) -> Any:
        calls.append(threading.current_thread().name)
        return function(*arrays)

    return call


def wrong_add(a: Any, b: Any) -> Any:
    return a + b + np.float32(1)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of one test."""
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "cache"))
    # more than there is, as other tests may run beside this one
    monkeypatch.setattr("onnxplug.verify.check.SECONDS", 60)
    return tmp_path / "cache" / "onnxplug"


def open_session(
    body: str, providers: Any = (SIMULATED, CPU), **named: Any
) -> onnxplug.InferenceSession:
    return onnxplug.InferenceSession(model(body), providers=list(providers), **named)


def placed(session: onnxplug.InferenceSession) -> dict[str, str]:
    return {node.op_type: node.ep for node in session.explain().nodes}


def verify_reasons(session: onnxplug.InferenceSession) -> dict[str, str]:
    return {
        node.op_type: passed.reason.detail
        for node, passed in session.explain().refusals
        if passed.reason.code is RefusalCode.VERIFY
    }


def test_a_wrong_kernel_is_caught_and_not_used(simulated: Verified) -> None:
    simulated(kernels={"Add": wrong_add}, probes=PROBES)
    with pytest.warns(EpWarning) as told:
        session = open_session("s = Add (x, x) y = MatMul (s, x)")
    assert placed(session) == {"Add": CPU, "MatMul": SIMULATED}
    (y,) = session.run(None, {"x": X})
    np.testing.assert_allclose(y, (X + X) @ X, rtol=1e-6)
    detail = verify_reasons(session)["Add"]
    assert "family 'add' failed on this device" in detail
    assert "4 of 4 elements of 'y' are wrong, most by 1 " in detail
    assert f"onnxplug doctor --verify {SIMULATED}" in detail
    assert "(verify: family 'add' failed" in str(session.explain())
    (warning,) = told
    assert warning.filename == __file__
    for part in (SIMULATED, "npu", "'add'", "ONNXPLUG_VERIFY=0", "doctor --verify"):
        assert part in str(warning.message)
    assert "matmul" not in str(warning.message)


def test_it_is_caught_once_in_a_process(simulated: Verified) -> None:
    calls: list[str] = []
    simulated(kernels={"Add": counted(wrong_add, calls)}, probes=PROBES)
    with pytest.warns(EpWarning):
        open_session("y = Add (x, x)")
    ran = len(calls)
    assert ran and set(calls) == {"onnxplug-verify"}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*was checked against")
        warnings.filterwarnings("ignore", message=".*runs no node")
        again = open_session("y = Add (x, x)")
    assert len(calls) == ran
    assert placed(again) == {"Add": CPU}


def test_right_kernels_are_used_without_a_word(simulated: Verified) -> None:
    simulated(probes=PROBES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = open_session("s = Add (x, x) y = MatMul (s, x)")
    assert placed(session) == {"Add": SIMULATED, "MatMul": SIMULATED}


def test_without_another_ep_the_error_says_why(simulated: Verified) -> None:
    simulated(kernels={"Add": wrong_add}, probes=PROBES)
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with (
        pytest.warns(EpWarning, match="checked against"),
        pytest.raises(UnassignedNode, match="verify: family 'add' failed"),
    ):
        open_session("y = Add (x, x)", [SIMULATED], sess_options=options)


def test_the_variable_leaves_it_out(
    simulated: Verified, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    plugin = simulated(kernels={"Add": counted(wrong_add, calls)}, probes=PROBES)
    own = PluginRegistry({"ONNXPLUG_VERIFY": "0"}, find_plugins)
    own.add(plugin)
    session = open_session("y = Add (x, x)", registry=own)
    assert placed(session) == {"Add": SIMULATED} and not calls
    with pytest.raises(onnxplug.errors.OptionError, match="ONNXPLUG_VERIFY is 'maybe'"):
        PluginRegistry({"ONNXPLUG_VERIFY": "maybe"}, find_plugins).settings  # noqa: B018


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        (lambda a, b: np.where(a > 2, np.nan, a + b), "[1, 0]: nan where the CPU EP"),
        (lambda a, b: (a + b) * np.float32(1.001), "wrong, most by 0.006 at [1, 0]"),
        (lambda a, b: 1 / 0, "it raised NodeError"),
    ],
    ids=["nan", "inexact", "raises"],
)
def test_what_is_wrong_is_told(simulated: Verified, kernel: Any, told: str) -> None:
    simulated(kernels={"Add": kernel}, probes=PROBES)
    with pytest.warns(EpWarning, match="families fail there"):
        session = open_session("s = Add (x, x) y = MatMul (s, x)")
    assert told in verify_reasons(session)["Add"]


def test_nan_is_nan(simulated: Verified) -> None:
    holes = probe("Add", inputs={"x": np.full((2, 2), np.nan, np.float32)})
    simulated(probes=[holes])
    session = open_session("y = Add (x, x)")
    assert placed(session) == {"Add": SIMULATED}


def test_a_node_is_refused_by_the_type_of_any_of_its_tensors(
    simulated: Verified,
) -> None:
    simulated(
        kernels={"Cast": lambda x: x.astype(np.float32) + np.float32(1)},
        probes=[probe("Cast", "i = Cast<to = 6> (x) y = Cast<to = 1> (i)")],
    )
    with pytest.warns(EpWarning):
        session = open_session("i = Cast<to = 7> (x) y = Cast<to = 1> (i)")
    assert {node.ep for node in session.explain().nodes} == {CPU}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = onnxplug.InferenceSession(
            onnx.parser.parse_model(
                """<ir_version: 10, opset_import: ["" : 21]>
                agraph (int64[2] x) => (int32[2] y) { y = Cast<to = 6> (x) }"""
            ),
            providers=[SIMULATED, CPU],
        )
    assert placed(other) == {"Cast": SIMULATED}


BODY = """
    <ir_version: 10, opset_import: ["" : 21]>
    agraph (float[2, 2] x, bool c) => (float[2, 2] y) {
        y = If (c) <then_branch = one () => (float[2, 2] a) { a = Add (x, x) },
                    else_branch = two () => (float[2, 2] b) { b = MatMul (x, x) }>
    }
"""


@pytest.mark.parametrize("takes", [{"Add", "MatMul"}, {"If", "Add", "MatMul"}])
def test_bodies_too(simulated: Verified, takes: set[str]) -> None:
    """Also where the EP would run the node with the body whole."""
    simulated(
        kernels={"Add": wrong_add}, probes=PROBES, ops=frozenset(takes), streams=False
    )
    with pytest.warns(EpWarning):
        session = onnxplug.InferenceSession(
            onnx.parser.parse_model(BODY), providers=[SIMULATED, CPU]
        )
    assert "add" in verify_reasons(session)["Add"]
    for condition, expected in ((True, X + X), (False, X @ X)):
        (y,) = session.run(None, {"x": X, "c": np.array(condition)})
        np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_an_atomic_group_goes_whole(simulated: Verified) -> None:
    simulated(kernels={"Add": wrong_add}, probes=PROBES, fuse=(("MatMul", "Add"),))
    with pytest.warns(EpWarning):
        session = open_session("m = MatMul (x, x) s = Add (m, x) y = Mul (s, s)")
    assert placed(session) == {"MatMul": CPU, "Add": CPU, "Mul": SIMULATED}
    (back,) = session.explain().given_back
    assert back.reason.code is RefusalCode.VERIFY and len(back.nodes) == 2


def test_constants_are_not_folded_by_a_family_that_fails() -> None:
    class HostEp(KernelExecutionProvider):
        def find_kernel(self, graph: ep.Graph, node: ep.Node) -> Any:
            return {"Add": wrong_add, "Mul": np.multiply}[node.op_type]

    class OfAdd(ep.Verification):
        def probes(self, device: ep.EpDevice) -> Iterable[Probe]:
            return [probe("Add")]

    class HostFactory(ep.EpFactory):
        spi_version = (0, 6)
        verification = OfAdd()
        name = "HostExecutionProvider"

        def supported_devices(self, devices: Any) -> Iterable[ep.EpDevice]:
            return [ep.EpDevice(ep_name=self.name, device=devices[0])]

        def create(self, devices: Any, options: Any, session: Any) -> HostEp:
            return HostEp()

    registry.add(HostFactory())
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    body = "k = Constant<value = float[1] {2}> () s = Add (k, k) y = Mul (x, s)"
    try:
        with (
            pytest.warns(EpWarning, match="checked against"),
            pytest.raises(UnassignedNode, match="verify: family 'add' failed"),
        ):
            open_session(body, [HostFactory.name], sess_options=options)
    finally:
        registry.remove(HostFactory.name)


# what shows nothing...


def test_a_probe_that_is_not_claimed_shows_nothing(simulated: Verified) -> None:
    factory = simulated(probes=[probe("Erf", "y = Erf (x)"), *PROBES])
    session = open_session("y = Add (x, x)")
    assert placed(session) == {"Add": SIMULATED}
    found = known_verdicts(factory, *factory.supported_devices([]), registry)
    assert [(each.family, each.verdict) for each in found] == [
        ("erf", "unverified"),
        ("add", "passed"),
        ("matmul", "passed"),
    ]
    assert "does not claim it" in found[0].detail


def test_without_the_cpu_ep_there_is_nothing_to_compare_with() -> None:
    factory = SimulatedFactory(Knobs(kernels={"Add": wrong_add}, probes=PROBES))
    own = PluginRegistry({"ONNXPLUG_BLOCK": "cpu"}, find_plugins)
    own.add(factory)
    session = open_session("y = Add (x, x)", [SIMULATED], registry=own)
    assert placed(session) == {"Add": SIMULATED}
    (first, _) = known_verdicts(factory, *factory.supported_devices([]), own)
    assert first.verdict == "unverified"
    assert "there is no CPU EP to compare with" in first.detail


def test_an_ep_that_cannot_be_created_again_is_not_condemned(
    simulated: Verified, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = simulated(probes=PROBES)
    create = factory.create
    made: list[Any] = []

    def create_once(*arguments: Any) -> Any:
        made.append(arguments)
        if len(made) > 1:
            raise RuntimeError("the device is busy")
        return create(*arguments)

    monkeypatch.setattr(factory, "create", create_once)
    session = open_session("y = Add (x, x)")
    assert placed(session) == {"Add": SIMULATED}
    assert not list(cache.glob("verify-*"))  # another process may have more luck


def raising(error: type[BaseException]) -> Callable[..., Any]:
    def kernel(a: Any, b: Any) -> Any:
        if threading.current_thread().name == "onnxplug-verify":
            raise error("not now")
        return a + b

    return kernel


@pytest.mark.parametrize("error", [MemoryError, UserWarning, KeyboardInterrupt])
def test_what_may_not_come_again_is_not_kept(
    simulated: Verified, cache: Path, error: type[BaseException]
) -> None:
    """Memory is full now, or this process makes errors of warnings."""
    simulated(kernels={"Add": raising(error)}, probes=PROBES)
    session = open_session("y = Add (x, x)")
    assert placed(session) == {"Add": SIMULATED}
    assert not list(cache.glob("verify-*"))


def test_without_threads_nothing_is_checked(
    simulated: Verified, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    simulated(kernels={"Add": wrong_add}, probes=PROBES)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    session = open_session("y = Add (x, x)")
    assert placed(session) == {"Add": SIMULATED}
    assert not list(cache.glob("verify-*"))


def test_threads_check_once(simulated: Verified) -> None:
    calls: list[str] = []
    simulated(kernels={"Add": counted(wrong_add, calls)}, probes=[probe("Add")])
    barrier, found = threading.Barrier(4), []

    def open_one() -> None:
        barrier.wait()
        found.append(placed(open_session("y = Add (x, x)")))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threads = [threading.Thread(target=open_one) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [{"Add": CPU}] * 4
    assert len(calls) == 2  # the device rehearses, then computes


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"family": ""}, "the family is no text"),
        ({"operators": frozenset()}, "at least one operator"),
        ({"operators": frozenset({("", "Add")})}, "('', 'Add')"),
        ({"model": "text"}, "the model is no bytes"),
        ({"inputs": {"x": [1, 2]}}, "no mapping of names to numpy arrays"),
        ({"tolerance": (0.1, float("nan"))}, "tolerance is (0.1, nan)"),
        ({"family": "matmul"}, "another one has the same family"),
    ],
)
def test_probes_that_are_none_are_told_and_done_without(
    simulated: Verified, changes: Mapping[str, Any], told: str
) -> None:
    simulated(probes=(probe("MatMul"), probe("Add", **changes)))
    with pytest.warns(EpWarning) as warned:
        session = open_session("y = Add (x, x)")
    assert placed(session) == {"Add": SIMULATED}
    (warning,) = warned
    assert told in str(warning.message)
    assert "used unverified" in str(warning.message)


@pytest.mark.parametrize(
    ("method", "answer", "told"),
    [
        ("probes", OptionError("no"), "failed in probes: OptionError: no"),
        ("probes", MemoryError(), "failed in probes: MemoryError"),
        ("probes", 3, "failed in probes: TypeError"),
        ("engine_versions", SystemExit(3), "failed in engine_versions: SystemExit"),
        ("engine_versions", {"driver": 3}, "it returned {'driver': 3}; expected texts"),
    ],
)
def test_a_factory_that_fails_is_told_and_its_ep_used(
    simulated: Verified,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    answer: Any,
    told: str,
) -> None:
    def give(device: ep.EpDevice) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    factory = simulated(probes=PROBES)
    supplies = factory.verification if method == "probes" else factory
    monkeypatch.setattr(supplies, method, give)
    with pytest.warns(EpWarning) as warned:
        session = open_session("y = Add (x, x)")
    assert placed(session) == {"Add": SIMULATED}
    (warning,) = warned
    assert told in str(warning.message)


def test_a_process_that_keeps_nothing_knows_what_it_found(
    simulated: Verified, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_SIZE", "0")
    calls: list[str] = []
    factory = simulated(kernels={"Add": counted(wrong_add, calls)}, probes=PROBES)
    with pytest.warns(EpWarning):
        open_session("s = Add (x, x) y = MatMul (s, x)")
    ran = len(calls)
    found = known_verdicts(factory, *factory.supported_devices([]), registry)
    assert [each.verdict for each in found] == ["failed", "passed"]
    assert len(calls) == ran and not cache.exists()


def test_a_probe_that_the_cpu_ep_cannot_run_shows_nothing(simulated: Verified) -> None:
    simulated(probes=[probe("Add", model=b"no model")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = open_session("y = Add (x, x)")
    assert placed(session) == {"Add": SIMULATED}
