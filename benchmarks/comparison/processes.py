"""A runtime that holds a model, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

WORKER = Path(__file__).parents[1] / "runtimes.py"
OURS = "onnxplug"


@dataclass(frozen=True, eq=False)
class Runtime:
    """What a model is run by.

    Attributes:
        name: what tables call it.
        kind: as ``runtimes.prepare`` takes it.
        options: onnxplug's provider options.
        python: the interpreter that has it installed.
    """

    name: str
    kind: str
    options: Mapping[str, str] = field(default_factory=dict)
    python: Path = Path(sys.executable)

    @property
    def is_peer(self) -> bool:
        """Whether it is another project's."""
        return not self.kind.startswith(OURS)


class Files(NamedTuple):
    """A model as files.

    Attributes:
        model: an ONNX file.
        feeds: its inputs by name, a ``.npz`` file.
        expected: its outputs in their order, computed in float64, if known.
    """

    model: Path
    feeds: Path
    expected: Path | None = None


class RuntimeFailed(Exception):
    """A runtime could not load or run a model."""


class Process:
    """A process of *runtime* that has loaded a model and run it once.

    Args:
        results: where it writes its outputs, a ``.npz`` file.
        cores: numbers of those that it may use, as many as threads.
        cache: where onnxplug keeps compiled kernels.
        clock: one of ``runtimes.CLOCKS``, by which all is timed.

    Attributes:
        hello: what it said after the first run: seconds of loading and running.
        start: seconds from the start of the process to the end of the first run.

    Raises:
        RuntimeFailed: it could not.
    """

    def __init__(
        self,
        runtime: Runtime,
        files: Files,
        results: Path,
        cores: Sequence[int],
        cache: Path,
        clock: str,
    ) -> None:
        command = [
            str(runtime.python),
            str(WORKER),
            runtime.kind,
            str(files.model),
            str(files.feeds),
            str(results),
            str(len(cores)),
            ",".join(map(str, cores)),
            json.dumps(dict(runtime.options)),
            clock,
        ]
        environment = dict(os.environ, ONNXPLUG_CACHE_DIR=str(cache))
        # installed packages have their modules compiled; so let editable ones be
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        started = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.runtime = runtime
        self.results = results
        try:
            self.hello = self._answer()
        except RuntimeFailed:
            self.end()
            raise
        self.start = time.perf_counter() - started
        if clock == "cpu":
            self.start = float(self.hello["cpu"])

    def time(self, seconds: float) -> float:
        """Seconds that a run takes, measured over about *seconds*."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return float(self._answer()["seconds"])

    def end(self) -> dict[str, Any]:
        """End the process; what it says last."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        last = [line for line in self._process.stdout if line.startswith("{")]
        self._process.stdout.close()
        self._process.wait()
        return json.loads(last[-1]) if last else {}

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # libraries may print lines of their own
                answer = json.loads(line)
                if "error" in answer:
                    raise RuntimeFailed(answer["error"])
                return dict(answer)
        raise RuntimeFailed(f"the process ended with status {self._process.wait()}")
