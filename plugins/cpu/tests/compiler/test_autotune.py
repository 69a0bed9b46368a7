"""The option ``autotune``: what is measured, chosen, kept and told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug.authoring.entries import Cache
from onnxplug_cpu.compiler.ir.commands import Buffer, Output
from onnxplug_cpu.compiler.ir.recorder import Recorder
from onnxplug_cpu.compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.contraction.commands import record_matmul
from onnxplug_cpu.compiler.kernels.contraction.schedule import SUGGESTED, Schedule
from onnxplug_cpu.compiler.runtime import autotune
from onnxplug_cpu.compiler.runtime.autotune import Bench, Tuner
from onnxplug_cpu.compiler.runtime.jit import Library
from onnxplug_cpu.compiler.target.isa import host_isa

from .replanning import compared_with_fresh_plans

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(1)
W = RNG.standard_normal((70, 90)).astype(np.float32)
NETWORK = onnx.parser.parse_model(
    """
    <ir_version: 10, opset_import: ["" : 21]>
    network (float[1, 70, 20, 20] x) => (float[1, 70, 20, 20] z) {
        c = Conv <pads = [2, 2, 2, 2]> (x, w)
        r = Relu (c)
        d = Conv <pads = [2, 2, 2, 2]> (r, w)
        y = Relu (d)
        z = Conv (y, v)
    }
    """
)
for name, shape in (("w", (70, 70, 5, 5)), ("v", (70, 70, 1, 1))):
    weights = RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    NETWORK.graph.initializer.append(
        onnx.numpy_helper.from_array(weights.astype(np.float32), name)
    )
X = RNG.standard_normal((1, 70, 20, 20)).astype(np.float32)


@pytest.fixture(autouse=True)
def nothing_is_known(tmp_path: Path) -> Iterator[None]:
    """The processor is one on which nothing was measured."""
    with (
        mock.patch.object(autotune, "chosen", {}),
        mock.patch.object(autotune, "model_name", lambda: str(tmp_path)),
    ):
        yield


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Library]:
    """Gives libraries on one folder, as those of several processes."""
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path))
    isa = host_isa()
    if isa is None:
        pytest.skip("no kernels for this processor")
    return lambda: Library(isa, Cache("onnxplug-cpu"))


class Told(Bench):
    """Is told how long candidates take."""

    fast = staticmethod(lambda candidate: candidate.tile is not None)

    def measure(self, candidates: Sequence[Any], rounds: int) -> None:
        for candidate in candidates:
            self._check()
            self._taken[candidate].append(500 if self.fast(candidate) else 1000)


@pytest.fixture
def told() -> Iterator[None]:
    with mock.patch.object(autotune, "Bench", Told):
        yield


def session(autotuned: bool, threads: int = 1) -> onnxplug.InferenceSession:
    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxplug.InferenceSession(
        NETWORK, options, providers=[("CPUExecutionProvider", {"autotune": autotuned})]
    )


def counts(made: onnxplug.InferenceSession) -> list[int]:
    """Of schedules: those measured, and those of them that were changed; those left."""
    (partition,) = made.explain().partitions
    return [n for what, n in partition.counts.items() if what in KINDS]


KINDS = ("measured schedules", "of them changed", "schedules left as there was no time")


def asked(tuner: Tuner) -> tuple[Schedule, str, list[Schedule]]:
    """The choice for a product, what is said of it, and the recorded candidates."""
    recorded: list[Schedule] = []

    def choose(candidates: Any, record: Any, read: Sequence[Buffer]) -> Any:
        def noting(recorder: Recorder, candidate: Any) -> None:
            recorded.append(candidate)
            record(recorder, candidate)

        found.append(tuner.choose(candidates, noting, read))
        return found[-1]

    found: list[tuple[Schedule, str]] = []
    recorder = Recorder(tuner.library.isa, 1, choose=choose)
    f32 = np.dtype(np.float32)
    a = recorder.temporary(f32, (40, 70))
    out = View.contiguous(Output(0, 40 * 90 * 4), f32, (40, 90))
    record_matmul(recorder, a, recorder.constant(W), out)
    return *found[0], recorded


# that results stay the same


@pytest.mark.parametrize("threads", [1, 2])
def test_a_session_gives_the_same_bits(threads: int) -> None:
    plain, tuned = session(False, threads), session(True, threads)
    (expected,), (found,) = plain.run(None, {"x": X}), tuned.run(None, {"x": X})
    assert found.tobytes() == expected.tobytes()
    assert counts(plain) == []
    measured, changed = counts(tuned)
    assert measured == 3
    assert changed <= measured


def test_choices_change_what_runs_and_are_told(told: None, tmp_path: Path) -> None:
    options = onnxplug.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    made = onnxplug.InferenceSession(
        NETWORK, options, providers=[("CPUExecutionProvider", {"autotune": "1"})]
    )
    assert counts(made) == [3, 3]
    said = "autotune chose tile="
    notes = [node.note for node in made.explain().nodes]
    assert [note.startswith(said) for note in notes] == [True] * len(notes)
    assert "2.00 times as fast as by default (1 → 0 µs)" in notes[0]
    (found,) = made.run(None, {"x": X})
    (expected,) = session(False).run(None, {"x": X})
    assert found.tobytes() == expected.tobytes()
    events = json.loads(Path(made.end_profiling()).read_text("utf-8"))
    told_of = [e["name"] for e in events if said in e.get("args", {}).get("note", "")]
    assert len(told_of) == 3


def test_plans_for_other_shapes_use_the_same_choices(told: None) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(NETWORK)
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[2].dim_param = "height"
    made = onnxplug.InferenceSession(
        model, providers=[("CPUExecutionProvider", {"autotune": True})]
    )
    with compared_with_fresh_plans() as compared:
        for height in (20, 9, 20, 11):
            made.run(None, {"x": X[:, :, :height]})
    assert len(compared) == 3


# what is measured


def test_the_faster_commands_are_found(library: Callable[[], Library]) -> None:
    """One candidate does the same three times."""
    host = library()
    recorder = Recorder(host.isa, 1)
    f32 = np.dtype(np.float32)
    a, b = (recorder.temporary(f32, shape) for shape in ((64, 256), (256, 256)))
    out = recorder.temporary(f32, (64, 256))
    record_matmul(recorder, a, b, out)
    once = recorder.commands
    bench = Bench(host, 1, [("three", once * 3), ("one", once)], [a.buffer])
    bench.measure(bench.candidates, 5)
    assert bench.fastest == "one"
    assert bench.within(1.5) == ["one"]
    assert bench.taken("three") > 1.5 * bench.taken("one")


def test_nothing_is_measured_where_all_ways_are_alike(
    library: Callable[[], Library],
) -> None:
    def record(recorder: Recorder, candidate: Schedule) -> None:
        a, b = (recorder.temporary(np.dtype(np.float32), (9, 9)) for _ in range(2))
        record_matmul(recorder, a, b, b)

    tuner = Tuner(library(), 1)
    with mock.patch.object(Bench, "__init__", side_effect=AssertionError):
        found = tuner.choose([SUGGESTED, Schedule(chunks=2)], record, [])
    assert found == (SUGGESTED, "")
    assert tuner.counts == {KINDS[0]: 1, KINDS[1]: 0}


def test_what_is_faster_in_several_fields_is_combined(
    library: Callable[[], Library], told: None
) -> None:
    costs = {"tile": 0.9, "row_parts": 0.8}

    def measure(self: Bench, candidates: Sequence[Any], rounds: int) -> None:
        for candidate in candidates:
            factors = [costs[name] for name in costs if getattr(candidate, name)]
            self._taken[candidate].append(int(1000 * np.prod([1.0, *factors])))

    with mock.patch.object(Told, "measure", measure):
        chosen, said, _ = asked(Tuner(library(), 1))
    assert chosen.tile
    assert chosen.row_parts
    assert "1.39 times" in said


@pytest.mark.parametrize("gain", [0, 20])
def test_small_gains_are_noise(
    library: Callable[[], Library], told: None, gain: int
) -> None:
    def measure(self: Bench, candidates: Sequence[Any], rounds: int) -> None:
        for candidate in candidates:
            self._taken[candidate].append(1000 - gain * (candidate != SUGGESTED))

    with mock.patch.object(Told, "measure", measure):
        assert asked(Tuner(library(), 1))[:2] == (SUGGESTED, "")


def test_measuring_ends_when_its_time_is_spent(
    library: Callable[[], Library], told: None
) -> None:
    tuner = Tuner(library(), 1, budget=0)
    for _ in range(2):
        assert asked(tuner)[:2] == (SUGGESTED, "")
    assert tuner.counts == dict(zip(KINDS, (0, 0, 1), strict=True))
    # the next session goes on
    assert asked(Tuner(library(), 1))[0].tile
    with mock.patch.object(autotune, "BUDGET", 0.0):
        made = session(True)
    assert counts(made) == [0, 0, 3]


def test_measuring_can_be_cancelled(library: Callable[[], Library]) -> None:
    class Cancelled(Exception):
        pass

    def look() -> None:
        raise Cancelled

    tuner = Tuner(library(), 1)
    recorder = Recorder(tuner.library.isa, 1, choose=tuner.watched(look))
    a = recorder.temporary(np.dtype(np.float32), (40, 70))
    out = recorder.temporary(np.dtype(np.float32), (40, 90))
    with pytest.raises(Cancelled):
        record_matmul(recorder, a, recorder.constant(W), out)
    assert not tuner.measured


# what is kept


def test_choices_are_kept_for_other_processes(
    library: Callable[[], Library], told: None
) -> None:
    chosen, said, _ = asked(Tuner(library(), 1))
    autotune.chosen.clear()
    with mock.patch.object(Bench, "__init__", side_effect=AssertionError):
        again, text, recorded = asked(Tuner(library(), 1, budget=0))
    assert (again, text) == (chosen, said)
    assert recorded == [SUGGESTED]  # to know what is asked for
    autotune.chosen.clear()
    # of two threads it is another question
    assert asked(Tuner(library(), 2, budget=0))[0] == SUGGESTED


def test_of_two_processes_the_first_decides(
    library: Callable[[], Library], told: None
) -> None:
    other: list[Schedule] = []

    def fast(candidate: Schedule) -> bool:
        if not other:
            other.append(SUGGESTED)
            with (
                mock.patch.object(autotune, "chosen", {}),
                mock.patch.object(
                    Told,
                    "fast",
                    staticmethod(lambda candidate: candidate.order == "panels"),
                ),
            ):
                other[0] = asked(Tuner(library(), 1))[0]
        return candidate.tile is not None

    with mock.patch.object(Told, "fast", staticmethod(fast)):
        assert asked(Tuner(library(), 1))[0] == other[0]
    assert other[0].order == "panels"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"null",
        b"[{}]",
        b"[[], 1, 1]",
        b'[{"tile": [100, 100]}, 2, 1]',
        b'[{"tile": {"rows": 1}}, 2, 1]',
        b'[{"order": 1}, 2, 1]',
        b'[{"row_parts": true}, 2, 1]',
        b'[{"row_parts": -1}, 2, 1]',
        b'[{"__class__": 1}, 2, 1]',
        b'[{}, "much", 1]',
        b"[" * 100_000,
    ],
)
def test_entries_that_make_no_sense_are_measured_anew(
    library: Callable[[], Library], told: None, content: bytes
) -> None:
    right = asked(Tuner(library(), 1))[0]
    host = library()
    remember = host.remember
    with mock.patch.object(
        Library, "remember", lambda _, name, found: remember(name, content)
    ):
        autotune.chosen.clear()
        for name in host.cache.names():
            if "-" not in name:
                host.cache.remove(name)
        assert asked(Tuner(library(), 1))[0] == right
    autotune.chosen.clear()
    assert asked(Tuner(library(), 1))[0] == right
    autotune.chosen.clear()
    assert asked(Tuner(library(), 1, budget=0))[0] == right


def test_damaged_files_are_measured_anew(
    library: Callable[[], Library], told: None, tmp_path: Path
) -> None:
    right = asked(Tuner(library(), 1))[0]
    entries = [
        path for path in tmp_path.rglob("*.entry") if "-" not in path.name
    ]  # those with a dash are code
    assert entries
    for path in entries:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    autotune.chosen.clear()
    assert asked(Tuner(library(), 1, budget=0))[0] == SUGGESTED
    assert asked(Tuner(library(), 1))[0] == right


@pytest.mark.parametrize("variable", ["ONNXPLUG_CACHE_DIR", "ONNXPLUG_CACHE_SIZE"])
def test_without_a_cache_choices_last_as_long_as_the_process(
    library: Callable[[], Library],
    told: None,
    variable: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv(variable, str(file) if "DIR" in variable else "0")
    chosen = asked(Tuner(library(), 1))[0]
    assert chosen.tile
    assert asked(Tuner(library(), 1, budget=0))[0] == chosen
    autotune.chosen.clear()
    assert asked(Tuner(library(), 1, budget=0))[0] == SUGGESTED


def test_compiling_ahead_measures_nothing_that_the_model_keeps(
    told: None, tmp_path: Path
) -> None:
    """Machine code is in no model, and neither are choices for one processor."""
    target = tmp_path / "ahead.onnx"
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("ep.context_enable", "1")
    options.add_session_config_entry("ep.context_file_path", str(target))
    with pytest.warns(onnxplug.errors.EpWarning, match="the user's own cache"):
        made = onnxplug.InferenceSession(
            NETWORK, options, providers=[("CPUExecutionProvider", {"autotune": "1"})]
        )
    assert counts(made) == [3, 3]
    assert not target.exists()
    autotune.chosen.clear()
    with mock.patch.object(autotune, "BUDGET", 0.0):  # what was measured is known
        assert counts(session(True, threads=0)) == [3, 3]
