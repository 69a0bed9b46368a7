"""Compiled partitions on disk: found again if nothing changed, and never otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxplug
from onnxplug import ep
from onnxplug.authoring import files
from onnxplug.plugins import registry
from onnxplug_cli.main import main

NAME = "ScalingExecutionProvider"
CPU = "CPUExecutionProvider"
WEIGHTS = np.arange(256, dtype=np.float32)
X = np.ones(256, np.float32)


class Scaled(ep.CompiledPartition):
    """``x * factors``."""

    def __init__(self, factors: Any) -> None:
        self.factors = factors

    def run(self, inputs: Any, outputs: Any, context: Any) -> Sequence[Any]:
        return [inputs[0] * self.factors]


class ScalingSerialiser(ep.Serialiser):
    caches = True

    def __init__(self, factory: ScalingFactory) -> None:
        self._factory = factory

    def serialise(self, compiled: Any) -> bytes:
        refuses = self._factory.refuses
        if refuses == "declined":
            raise ep.Declined("it is a trade secret")
        if refuses == "broken":
            raise RuntimeError("no pen")
        if refuses == "nothing":
            return None  # type: ignore[return-value]
        return bytes(compiled.factors.tobytes())

    def restore(
        self, partition: ep.Partition, data: memoryview
    ) -> ep.CompiledPartition:
        self._factory.calls.append("restore")
        if self._factory.restores is not None:
            restored: ep.CompiledPartition = self._factory.restores()
            return restored
        assert data.readonly
        factors = np.frombuffer(data, np.float32)
        assert factors.ctypes.data % 64 == 0
        return Scaled(factors)


class ScalingProvider(ep.ExecutionProvider):
    def __init__(self, factory: ScalingFactory, gain: float) -> None:
        self.serialiser = ScalingSerialiser(factory)
        self._factory = factory
        self._gain = np.float32(gain)

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        other = ep.Reason(ep.RefusalCode.OP, "it multiplies")
        return ep.CapabilityReport.per_node(
            graph, lambda node: None if node.op_type == "Mul" else other
        )

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        self._factory.calls.append("compile")
        factors = partition.constant(partition.nodes[0].inputs[1] or "")
        return Scaled(factors * self._gain)


class ScalingFactory(ep.EpFactory):
    """Compiles products with a constant, and records what it is asked for."""

    spi_version = (0, 4)
    name = NAME
    version = "1"
    options: ClassVar[Mapping[str, ep.Option]] = {
        "gain": ep.Option(default=1.0),
        "priority": ep.Option(default=0, compiled_in=False),
    }
    config_entries: ClassVar[Mapping[str, ep.Option]] = {
        "mode": ep.Option(default="fast")
    }

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.engine = "5.1"
        self.refuses = ""
        self.restores: Callable[[], Any] | None = None

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterator[ep.EpDevice]:
        cpus = (each for each in devices if each.type is ep.DeviceType.CPU)
        return (ep.EpDevice(ep_name=NAME, device=each) for each in cpus)

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        return ScalingProvider(self, float(options["gain"]))

    def engine_versions(self, device: ep.EpDevice) -> Mapping[str, str]:
        return {"scaler": self.engine}


def model(weights: Any = WEIGHTS, op_type: str = "Mul") -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"]),
        helper.make_node(op_type, ["positive", "w"], ["y"]),
    ]
    stored = [numpy_helper.from_array(weights, "w")]
    return helper.make_model(helper.make_graph(nodes, "scaling", [x], [y], stored))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the entries of one test are; files count as old enough."""
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "_TICK", 0)
    return tmp_path / "cache" / "onnxplug-compiled"


@pytest.fixture
def factory() -> Iterator[ScalingFactory]:
    factory = ScalingFactory()
    registry.add(factory)
    yield factory
    registry.remove(NAME)


def open_session(
    source: Any = None,
    options: Mapping[str, Any] | None = None,
    sess_options: onnxplug.SessionOptions | None = None,
) -> onnxplug.InferenceSession:
    return onnxplug.InferenceSession(
        model().SerializeToString() if source is None else source,
        sess_options,
        providers=[(NAME, dict(options or {})), CPU],
    )


def outcome(session: onnxplug.InferenceSession) -> str:
    (part,) = [each for each in session.explain().partitions if each.ep == NAME]
    return part.cache


def check(session: onnxplug.InferenceSession, factors: Any = WEIGHTS) -> None:
    (y,) = session.run(None, {"x": X})
    np.testing.assert_array_equal(y, X * factors)


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.entry"))


def test_the_second_session_restores(factory: ScalingFactory, folder: Path) -> None:
    first, second = open_session(), open_session()
    assert factory.calls == ["compile", "restore"]
    assert outcome(first) == "cached for other processes"
    assert outcome(second) == "restored from the cache"
    assert "1 node (Mul), restored from the cache" in str(second.explain())
    (partition,) = [
        each for each in second.explain().to_dict()["partitions"] if each["ep"] == NAME
    ]
    assert partition["cache"] == "restored from the cache"
    check(first)
    check(second)
    (entry,) = entries(folder)
    assert entry.stat().st_mode & 0o077 == 0


def test_a_restored_partition_outlives_its_entry(
    factory: ScalingFactory, folder: Path
) -> None:
    open_session()
    session = open_session()
    for entry in entries(folder):
        entry.unlink()
    check(session)


def test_other_processes_find_it(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    script = textwrap.dedent(f"""
        import json, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import test_compiled_cache as tests
        tests.files._TICK = 0
        factory = tests.ScalingFactory()
        tests.registry.add(factory)
        session = tests.open_session({str(path)!r})
        tests.check(session)
        print(json.dumps(factory.calls))
    """)

    def calls() -> Any:
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert calls() == ["compile"]
    assert calls() == ["restore"]
    onnx.save(model(WEIGHTS + 1), path)
    done = subprocess.run(
        [sys.executable, "-c", script.replace("tests.check(session)", "")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == ["compile"]


@pytest.mark.parametrize(
    "change",
    [
        lambda factory: setattr(factory, "version", "2"),
        lambda factory: setattr(factory, "engine", "5.2"),
        lambda factory: setattr(
            factory, "__class__", type("Other", (ScalingFactory,), {})
        ),
    ],
    ids=["version", "engine", "class"],
)
def test_another_ep_compiles_anew(
    factory: ScalingFactory, change: Callable[[ScalingFactory], None]
) -> None:
    open_session()
    change(factory)
    assert outcome(open_session()) == "cached for other processes"
    assert factory.calls == ["compile", "compile"]


def test_other_options_compile_anew(factory: ScalingFactory) -> None:
    open_session()
    check(open_session(options={"gain": 2.0}), WEIGHTS * 2)
    assert factory.calls == ["compile", "compile"]
    check(open_session(options={"gain": "1"}))  # as it is by default
    check(open_session(options={"priority": 3}))
    assert factory.calls[2:] == ["restore", "restore"]


def test_other_entries_and_threads_compile_anew(factory: ScalingFactory) -> None:
    open_session()
    options = onnxplug.SessionOptions()
    options.add_session_config_entry(f"ep.{NAME}.mode", "slow")
    open_session(sess_options=options)
    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = 3
    open_session(sess_options=options)
    assert factory.calls == ["compile"] * 3


def test_other_weights_compile_anew(factory: ScalingFactory) -> None:
    open_session()
    other = WEIGHTS.copy()
    other[-1] = -1
    check(open_session(model(other).SerializeToString()), other)
    assert factory.calls == ["compile", "compile"]


def test_damaged_entries_are_rebuilt(factory: ScalingFactory, folder: Path) -> None:
    open_session()
    (entry,) = entries(folder)
    whole = entry.read_bytes()
    damaged = [bytes(whole[:n]) for n in (0, 8, 16, 20, 100, len(whole) - 1)]
    for place in range(0, len(whole), 61):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        damaged.append(bytes(flipped))
    for content in damaged:
        entry.write_bytes(content)
        factory.calls.clear()
        check(open_session())
        assert factory.calls == ["compile"]
        assert entry.read_bytes() == whole


def test_an_entry_under_another_s_name_is_none(
    factory: ScalingFactory, folder: Path
) -> None:
    open_session()
    (first,) = entries(folder)
    open_session(options={"gain": 2.0})
    (second,) = set(entries(folder)) - {first}
    second.write_bytes(first.read_bytes())
    check(open_session(options={"gain": 2.0}), WEIGHTS * 2)
    assert factory.calls == ["compile"] * 3


def fails() -> Any:
    raise RuntimeError("the blob is of Tuesday")


@pytest.mark.parametrize(
    "restores, fault",
    [
        (fails, "RuntimeError: the blob is of Tuesday"),
        (lambda: None, "TypeError: restore() returned a NoneType"),
        (lambda: sys.exit(3), "SystemExit: 3"),
    ],
)
def test_what_cannot_be_restored_is_compiled(
    factory: ScalingFactory, restores: Callable[[], Any], fault: str
) -> None:
    open_session()
    factory.restores = restores
    session = open_session()
    check(session)
    assert factory.calls == ["compile", "restore", "compile"]
    assert outcome(session).startswith("cached for other processes; what was there")
    assert fault in outcome(session)
    factory.restores = None
    assert outcome(open_session()) == "restored from the cache"


@pytest.mark.parametrize(
    "refuses, why",
    [
        ("declined", "it is a trade secret"),
        ("broken", f"{NAME} failed in serialise: RuntimeError: no pen"),
        ("nothing", f"{NAME} failed in serialise: TypeError"),
    ],
)
def test_what_is_not_serialised_runs_all_the_same(
    factory: ScalingFactory, folder: Path, refuses: str, why: str
) -> None:
    factory.refuses = refuses
    session = open_session()
    check(session)
    assert outcome(session).startswith(f"not cached: {why}")
    assert not entries(folder)


def test_the_cache_has_a_size(
    factory: ScalingFactory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_SIZE", "0")
    assert outcome(open_session()) == "not cached: ONNXPLUG_CACHE_SIZE is 0"
    monkeypatch.setenv("ONNXPLUG_CACHE_SIZE", "500")
    assert "500 may be kept; ONNXPLUG_CACHE_SIZE sets" in outcome(open_session())
    assert not entries(folder)
    monkeypatch.setenv("ONNXPLUG_CACHE_SIZE", "4K")
    for gain in range(1, 6):
        session = open_session(options={"gain": float(gain)})
        check(session, WEIGHTS * gain)
        assert sum(entry.stat().st_size for entry in entries(folder)) <= 4096
    assert 0 < len(entries(folder)) < 5


def test_large_entries_are_found_and_checked(
    factory: ScalingFactory, folder: Path
) -> None:
    """Those whose digest is of pieces."""
    weights = np.arange(5 << 20, dtype=np.float32)
    source = model(weights).SerializeToString()
    open_session(source)
    (y,) = open_session(source).run(None, {"x": np.ones_like(weights)})
    np.testing.assert_array_equal(y, weights)
    assert factory.calls == ["compile", "restore"]
    (entry,) = entries(folder)
    with entry.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    open_session(source)
    assert factory.calls[2:] == ["compile"]


def test_sessions_at_once(factory: ScalingFactory, folder: Path) -> None:
    def use(_: int) -> None:
        for _ in range(5):
            check(open_session())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, range(4)))
    assert len(entries(folder)) == 1


def test_eps_that_do_not_ask_have_none(folder: Path) -> None:
    session = onnxplug.InferenceSession(
        model().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    check(session)
    assert {part.cache for part in session.explain().partitions} == {""}
    assert not folder.exists()


def test_a_factory_that_cannot_say_what_it_compiles_for(
    factory: ScalingFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def engine_versions(self: ScalingFactory, device: ep.EpDevice) -> Any:
        raise OSError("no driver")

    monkeypatch.setattr(ScalingFactory, "engine_versions", engine_versions)
    with pytest.raises(onnxplug.errors.EpError, match="compatibility_info: OSError"):
        onnxplug.InferenceSession(model().SerializeToString(), providers=[NAME])


def test_the_command_line_lists_and_clears_them(
    factory: ScalingFactory,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "\x1b[2Jm.onnx"
    onnx.save(model(), path)
    assert main(["cache", "ls", "--compiled"]) == 0
    assert capsys.readouterr().out == "No compiled partitions are kept.\n"
    open_session(str(path))
    open_session(options={"gain": 2.0})
    assert main(["cache", "ls", "--compiled"]) == 0
    header, latest, first = capsys.readouterr().out.splitlines()
    assert header.split() == "EP DEVICE MODEL NODES INPUTS SIZE USED".split()
    assert latest.split()[:5] == [NAME, "cpu", "scaling", "1", "positive[n]"]
    assert "m.onnx" in first and "\x1b" not in first
    assert main(["cache", "ls", "--compiled", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["compiled"]
    assert [row["model"] for row in rows] == ["scaling", str(path)]
    assert {row["version"] for row in rows} == {"1"}
    entries(folder)[0].write_bytes(b"nonsense")
    assert main(["cache", "ls", "--compiled"]) == 0
    assert " ? " in capsys.readouterr().out
    assert main(["cache", "clear", "compiled"]) == 0
    assert "deleted 2 files" in capsys.readouterr().out
    check(open_session(str(path)))
    assert factory.calls == ["compile"] * 3
