"""The ONNX backend suite through an EP: what it runs, and what is lost with it.

Each case is run with the EP alone; where that fails, with the CPU EP after it; and
where that fails too, with the CPU EP alone.  Cases run in processes of their own, since
an engine may end one.
"""

from __future__ import annotations

import difflib
import json
import multiprocessing
import tempfile
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import onnxplug
from onnxplug.authoring.record import Record
from onnxplug.backend import OnnxplugBackend, OnnxplugBackendRep

CPU: Final = "CPUExecutionProvider"

RANDOM: Final = "test_bernoulli"
"""Cases that compare with random draws, which are the same only by chance."""

ROUNDED: Final = frozenset(
    {
        "test_dft_inverse",
        "test_dft_inverse_opset19",
        "test_attention_4d_causal_fp16_expanded",
    }
)
"""Cases that expect how their own sums were rounded, of zeros or within a step of
float16, which others pass by the same rounding only."""

_HOST: Final = "host"
"""The tier of nodes that an EP computes on the host."""

SECONDS_PER_CASE: Final = 120.0


def load_cases(backend: Any) -> dict[str, Callable[[], None]]:
    """Every case that runs on the CPU, by name; calling one raises if it fails."""
    from onnx.backend.test import BackendTest

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's own generators overflow
        test_cases = BackendTest(backend, __name__).test_cases
    cases: dict[str, Callable[[], None]] = {}
    for test_class in test_cases.values():
        for name in sorted(dir(test_class)):
            if name.startswith("test_") and name.endswith("_cpu"):
                cases[name.removesuffix("_cpu")] = _runner(test_class, name)
    return cases


def _runner(test_class: type[unittest.TestCase], name: str) -> Callable[[], None]:
    def run() -> None:
        getattr(test_class(name), name)()

    return run


class Lineup(Record):
    """An EP to count with.

    Attributes:
        ep: its name.
        options: of its sessions.
        patience: seconds in which each case ends, at least; one that does not by twice
            of these is ended.
    """

    ep: str
    options: Mapping[str, Any]
    patience: float = SECONDS_PER_CASE

    def backend(self, *after: str) -> type[CountingBackend]:
        """The EP first, then those *after* it; alone nothing may be left over."""
        providers: list[Any] = [(self.ep, dict(self.options)), *after]

        class Backend(CountingBackend):
            lineup = providers
            counted = self.ep

        return Backend


class CountingBackend(OnnxplugBackend):
    """Tells which nodes of the model that was prepared last an EP runs."""

    lineup: ClassVar[Sequence[Any]] = (CPU,)
    counted: ClassVar[str] = CPU
    nodes: ClassVar[int] = 0
    latest: ClassVar[onnxplug.InferenceSession | None] = None

    @classmethod
    def prepare(
        cls, model: Any, device: str | None = "CPU", **kwargs: Any
    ) -> OnnxplugBackendRep:
        """A session, whose nodes on the EP are counted."""
        cls.nodes, cls.latest = 0, None
        settings = onnxplug.SessionOptions()
        settings.add_session_config_entry("session.check_results", "1")
        if CPU not in cls.lineup:
            settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        kwargs |= {"providers": list(cls.lineup), "sess_options": settings}
        prepared = super().prepare(model, device, **kwargs)
        cls.latest = prepared.session
        cls.nodes = sum(
            node.ep == cls.counted for node in prepared.session.explain().nodes
        )
        return prepared

    @classmethod
    def operators(cls) -> list[str]:
        """Those that the EP has computed since, but for what it left to the host."""
        nodes = () if cls.latest is None else cls.latest.explain().nodes
        return sorted(
            {
                f"{node.domain}.{node.op_type}" if node.domain else node.op_type
                for node in nodes
                if node.ep == cls.counted and node.tier != _HOST
            }
        )


def _outcome(run: Callable[[], None]) -> str:
    """What a case raised; empty if it passed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run()
    except unittest.SkipTest as skipped:
        return f"skipped: {skipped}"
    except Exception as error:  # noqa: BLE001 (whatever a case raises)
        return f"{type(error).__name__}: {str(error).strip()[:400]}"
    return ""


def _run_cases(lineup: Lineup, names: Sequence[str], results: Path) -> None:
    """Append a line of JSON before each case, and another after it."""
    backends: dict[str, type[CountingBackend]] = {
        "alone": lineup.backend(),
        "both": lineup.backend(CPU),
        "cpu": CountingBackend,
    }
    cases = {word: load_cases(backend) for word, backend in backends.items()}
    with results.open("a", encoding="utf-8") as file:
        for name in names:
            file.write(json.dumps({"case": name}) + "\n")
            file.flush()
            line: dict[str, Any] = {"case": name, "nodes": 0}
            for word, backend in backends.items():
                line[word] = _outcome(cases[word][name])
                if not line[word]:
                    line["nodes"] = backend.nodes if word != "cpu" else 0
                    line["operators"] = backend.operators() if word == "alone" else []
                    break
            file.write(json.dumps(line) + "\n")
            file.flush()


def _run_until_done(lineup: Lineup, names: Sequence[str], results: Path) -> None:
    """Run the cases in processes, each until one ends or does not end."""
    context = multiprocessing.get_context("fork")
    left = list(names)
    while left:
        results.touch()
        process = context.Process(target=_run_cases, args=(lineup, left, results))
        process.start()
        seen = -1
        while process.is_alive():
            process.join(lineup.patience)
            size = results.stat().st_size
            if process.is_alive() and size == seen:
                process.kill()
            seen = size
        last = _read(results)[-1:]
        if last and "alone" not in last[0]:
            line = {
                "case": last[0]["case"],
                "alone": f"the process ended with {process.exitcode}",
                "both": "not run: the process ended",
                "cpu": "",
                "nodes": 0,
            }
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        done = {line["case"] for line in _read(results) if "alone" in line}
        if not last or (process.exitcode and "alone" in last[0]):
            raise RuntimeError(f"the process ended with {process.exitcode}")
        left = [name for name in left if name not in done]


def _read(results: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in results.read_text("utf-8").splitlines()]


def count_cases(
    lineup: Lineup, names: Iterable[str] = (), *, every: int = 1, jobs: int = 1
) -> dict[str, Any]:
    """Counts, and the cases that fail with what they raised.

    Args:
        names: the cases; empty for all.
        every: run only every so manieth of them.
        jobs: in how many processes.

    Raises:
        NotFound: the suite has no case of some name.
        InvalidArgument: *every* or *jobs* is less than 1.
    """
    for what, number in (("every", every), ("jobs", jobs)):
        if number < 1:
            raise onnxplug.errors.InvalidArgument(
                f"{what} is {number}; expected 1 or more"
            )
    chosen = _chosen(names)[::every]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{part}.jsonl" for part in range(jobs)]
        context = multiprocessing.get_context("fork")
        workers = [
            context.Process(
                target=_run_until_done, args=(lineup, chosen[part::jobs], file)
            )
            for part, file in enumerate(files)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if any(worker.exitcode for worker in workers):
            raise RuntimeError(f"ended with {[each.exitcode for each in workers]}")
        lines = [line for file in files for line in _read(file) if "alone" in line]
    return _counts(lineup, lines)


def _chosen(names: Iterable[str]) -> list[str]:
    """The cases of these *names*; all, if there are none.

    Raises:
        NotFound: the suite has no case of some name.
    """
    known = list(load_cases(CountingBackend))
    chosen = [names] if isinstance(names, str) else list(names)
    unknown = [name for name in chosen if name not in known]
    if unknown:
        near = difflib.get_close_matches(str(unknown[0]), known, n=1)
        raise onnxplug.errors.NotFound(
            f"the backend suite has no case {', '.join(map(repr, unknown))}"
            + (f"; did you mean {near[0]!r}?" if near else "")
        )
    return chosen or known


def _is_by_chance(case: str) -> bool:
    return RANDOM in case or case in ROUNDED


def _counts(lineup: Lineup, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    ep = lineup.ep
    lost = {
        line["case"]: line["both"]
        for line in lines
        if line.get("both") and not line["cpu"] and not _is_by_chance(line["case"])
    }
    wrong = {
        line["case"]: line["alone"]
        for line in lines
        if line["alone"]
        and not line["alone"].startswith(("UnassignedNode", "skipped"))
        and not line.get("cpu")  # nor does the CPU EP pass it
        and line["case"] not in ROUNDED
    }
    wholly = [line for line in lines if not line["alone"]]
    operators = Counter(name for line in wholly for name in line["operators"])
    return {
        "ep": ep,
        "options": dict(lineup.options),
        "cases": len(lines),
        "pass wholly on the EP": len(wholly),
        "of these compute nothing on it": sum(not line["operators"] for line in wholly),
        "of these by operator": dict(sorted(operators.items())),
        "pass on the EP and the CPU EP": sum(
            not line["alone"] or not line["both"] for line in lines
        ),
        "nodes that the EP ran": sum(line["nodes"] for line in lines),
        "pass on the CPU EP only": lost,
        "fail on the EP alone only": wrong,
        "need the CPU EP": {
            line["case"]: line["alone"]
            for line in lines
            if line["alone"].startswith("UnassignedNode")
        },
    }
