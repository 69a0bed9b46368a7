"""A trace, apart from sessions."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from onnxplug import ep
from onnxplug.errors import OptionError
from onnxplug.run import profiling
from onnxplug.run.profiling import Profile, stage


def record(profile: Profile, name: str = "work", **details: object) -> None:
    profile.record(
        name,
        category="Node",
        start_ns=time.perf_counter_ns(),
        duration_ns=1500,
        details=details,
    )


def read(path: str) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """The events, and the facts about the trace by name."""
    everything = json.loads(Path(path).read_text("utf-8"))
    for event in everything:
        assert {"cat", "pid", "tid", "dur", "ts", "ph", "name", "args"} == set(event)
    facts = {event["name"]: event["args"] for event in everything if event["ph"] == "M"}
    return [event for event in everything if event["ph"] == "X"], facts


def test_an_event_is_written_as_it_was(tmp_path: Path) -> None:
    profile = Profile(str(tmp_path / "t"))
    record(profile, "first", op_name="Add", shapes=({"float": (2, 3)},), n=1)
    ((event,), facts) = read(profile.end())
    assert event["name"] == "first_kernel_time"
    assert event["cat"] == "Node"
    assert event["dur"] == 1.5
    assert 0 < event["ts"] < 60e6
    assert (event["pid"], event["tid"]) == (os.getpid(), threading.get_native_id())
    assert event["args"] == {"op_name": "Add", "shapes": [{"float": [2, 3]}], "n": 1}
    assert facts["thread_name"] == {"name": threading.current_thread().name}
    assert facts["trace_info"]["events"] == 1
    assert facts["trace_info"]["max_events"] == 1_000_000
    assert facts["trace_info"]["events_left_out"] == 0


def test_the_file_is_named_as_by_onnxruntime(tmp_path: Path) -> None:
    before = time.time_ns()
    profile = Profile(str(tmp_path / "some"))
    assert before <= profile.start_time_ns <= time.time_ns()
    name = re.fullmatch(
        r"some_(\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d)_(\d{3,})\.json",
        Path(profile.end()).name,
    )
    assert name is not None
    when = time.localtime(profile.start_time_ns // 10**9)
    assert name[1] == time.strftime("%Y-%m-%d_%H-%M-%S", when)
    assert int(name[2]) == profile.start_time_ns // 10**6 % 1000


def test_traces_of_one_moment_have_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_999_999_999)
    paths = [Profile(str(tmp_path / "t")).end() for _ in range(3)]
    assert len(set(paths)) == 3
    assert paths[2].endswith("_1001.json")


def test_a_folder_that_is_missing_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"No such file.*profile_file_prefix"):
        Profile(str(tmp_path / "missing" / "t"))


def test_it_ends_once(tmp_path: Path) -> None:
    profile = Profile(str(tmp_path / "t"))
    assert profile.end() == profile.path
    content = Path(profile.path).read_text()
    record(profile)
    assert profile.end() == ""
    assert Path(profile.path).read_text() == content


def test_what_json_cannot_hold_is_written_as_text(tmp_path: Path) -> None:
    profile = Profile(str(tmp_path / "t"))
    record(profile, "×", a=float("nan"), b=float("-inf"), c={1: b"x"}, d=None, e=True)
    ((event,), _) = read(profile.end())
    assert event["name"] == "×_kernel_time"
    assert event["args"] == {
        "a": "nan", "b": "-inf", "c": {"1": "b'x'"}, "d": None, "e": True
    }  # fmt: skip


def test_beyond_the_limit_events_are_only_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "MAX_EVENTS", 10)
    profile = Profile(str(tmp_path / "t"))
    for _ in range(25):
        record(profile)
    events, facts = read(profile.end())
    assert len(events) == 10
    assert facts["trace_info"]["max_events"] == 10
    assert facts["trace_info"]["events_left_out"] == 15


def test_memory_is_bounded_and_the_file_is_whole_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "MAX_PENDING", 7)
    monkeypatch.setattr(profiling, "PENDING_AT_RUN_END", 3)
    profile = Profile(str(tmp_path / "t"))
    for number in range(16):
        record(profile, str(number))
        assert len(profile._pending) < 7
    with profile.run():
        record(profile, "16")
    assert profile._pending == []
    # a killed process leaves what was written; it lacks only the end
    text = Path(profile.path).read_text()
    assert len(json.loads(text + "]")) == 18
    events, _ = read(profile.end())
    numbers = [str(number) for number in range(17)]
    assert [e["name"].removesuffix("_kernel_time") for e in events] == [
        *numbers,
        "model_run",
    ]


def test_threads_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "MAX_PENDING", 50)
    profile = Profile(str(tmp_path / "t"))
    threads = [
        threading.Thread(
            target=lambda: [record(profile) for _ in range(300)], name=f"worker {n}"
        )
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    path = profile.end()
    events, _ = read(path)
    assert len(events) == 1200
    # a thread's number may be given to a later one
    assert 1 <= len({event["tid"] for event in events}) <= 4
    assert "worker 0" in Path(path).read_text()


class _Done(ep.Event):
    def done(self) -> bool:
        return True

    def synchronize(self) -> None:
        return


class _Stream(ep.Stream):
    def record(self) -> ep.Event:
        return _Done()

    def wait(self, event: ep.Event) -> bool:
        return False

    def synchronize(self) -> None:
        return


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_does_not_ask_for_events_of_its_parent(tmp_path: Path) -> None:
    profile = Profile(str(tmp_path / "t"))
    told: list[int] = []
    profile.of("Acme", _Stream(), is_noting=False).when_done(
        lambda: told.append(os.getpid())
    )
    child = os.fork()
    if not child:
        try:
            with profile.run():
                profile.hear(wait=True)
        finally:
            os._exit(len(told))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    profile.end()
    assert told == [os.getpid()]


def test_a_stage_is_taken_down_even_if_it_fails(tmp_path: Path) -> None:
    profile = Profile(str(tmp_path / "t"))
    with pytest.raises(ValueError, match="wrong"), stage(profile, "try"):
        raise ValueError("wrong")
    with stage(None, "nothing"):
        pass
    ((event,), _) = read(profile.end())
    assert (event["name"], event["cat"]) == ("try", "Session")


def test_a_run_does_not_fail_when_the_disk_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "MAX_PENDING", 2)
    (tmp_path / "gone").mkdir()
    profile = Profile(str(tmp_path / "gone" / "t"))
    Path(profile.path).unlink()
    (tmp_path / "gone").rmdir()
    for _ in range(5):
        record(profile)
    with pytest.raises(FileNotFoundError):
        profile.end()
    assert profile.end() == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_leaves_the_file_alone(tmp_path: Path) -> None:
    profile = Profile(str(tmp_path / "t"))
    record(profile, "parent")
    child = os.fork()
    if not child:
        record(profile, "child")
        os._exit(profile.end() != "")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ((event,), _) = read(profile.end())
    assert event["name"] == "parent_kernel_time"
