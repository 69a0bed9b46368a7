"""What is done once, before the processes of the checks are forked, which inherit it.

Each of them would do it anew else, in the time that it has for its cases: imports take
more of it than the first fifty.  No EP is started by that in this process.
"""

from __future__ import annotations

import functools
import importlib
import os
import pickle
import pkgutil
import sys
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from onnxplug.authoring.cache import DIRECTORY
from onnxplug_testing.conformance.cases import load_suite
from onnxplug_testing.conformance.check import Check
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.forked import Child, in_child
from onnxplug_testing.conformance.opinions import by_cpu, by_reference
from onnxplug_testing.conformance.pitfalls import load_pitfalls
from onnxplug_testing.conformance.subject import Subject
from onnxplug_testing.conformance.survey import survey
from onnxplug_testing.conformance.taps import ignoring_failures
from onnxplug_testing.random_conv_nets import ConvNet
from onnxplug_testing.random_models import draw_model

_OF_SESSIONS: Final = (
    "session", "session.start", "compile", "graph", "partition", "prepare", "run",
    "selection", "shapes", "verify",
)  # fmt: skip
"""The host's packages that the first session imports."""

_OF_CASES: Final = frozenset(
    {
        "operators",
        "claims",
        "costs/each-operator",
        "factory/versions",
        "memory/each-operator",
        "specialisation/element-types-in-runs",
        "specialisation/many-at-once",
        "specialisation/sizes",
        "time/late-operators",
    }
)
"""Groups, and checks of others, that try ONNX's own cases."""

_SECONDS: Final = 60.0
"""In which a child runs two models, on a machine that does much else."""

_IMPORTED: Final = "imported"

_ASKED: Final = "asked"

_SEVERAL: Final = 2


def tries_cases(check: Check) -> bool:
    """Whether *check* tries ONNX's own cases, of which there are more than time."""
    return not _OF_CASES.isdisjoint((check.group, check.full_name))


def prepare(check: Check, *, forks: bool) -> None:
    """Have what *check* needs in this process, besides the EP.

    Args:
        forks: the check has a process of its own.
    """
    if tries_cases(check):
        load_suite()
        load_pitfalls()
    if forks:
        _load_host()
        _load_references()


def surveyed(subject: Subject, checks: Sequence[Check]) -> Subject:
    """*subject* with what it says of ONNX's cases and of its operators, if several of
    *checks* try cases.

    It is asked in a process of its own; each check asks it where it raises, or ends or
    hangs that.
    """
    if sum(map(tries_cases, checks)) < _SEVERAL:
        return subject
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "answers"

        def work() -> str:
            with ignoring_failures():
                said = survey(subject, load_suite()), subject.operators()
                path.write_bytes(pickle.dumps(said))
            return _ASKED

        if in_child(work, _SECONDS) != Child(_ASKED) or not path.exists():
            return subject
        answers, listed = pickle.loads(path.read_bytes())
        return subject._replace(answers=answers, listed=listed)


@functools.cache
def _load_host() -> None:
    """Import what makes sessions."""
    for name in _OF_SESSIONS:
        package = importlib.import_module(f"onnxplug.{name}")
        for found in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"onnxplug.{name}.{found.name}")


@functools.cache
def _load_references() -> None:
    """Import what those import that an EP is compared with, as a child has done."""
    words = in_child(_imports_of_references, _SECONDS).said.split()
    if words[:1] == [_IMPORTED]:
        for name in words[1:]:
            with warnings.catch_warnings(), suppress(ImportError):
                warnings.simplefilter("ignore")
                importlib.import_module(name)


def _imports_of_references() -> str:
    """Modules that the first networks import, with images and without."""
    before = set(sys.modules)
    drawn, net = draw_model(0), ConvNet(0)
    # what a cache has is not compiled, and what compiles not imported
    with tempfile.TemporaryDirectory() as folder:
        os.environ[DIRECTORY] = folder
        for model, feeds in ((drawn.model, drawn.feeds), (net.model, net.feeds)):
            names = {value.name for value in model.graph.input}
            fed = {name: array for name, array in feeds.items() if name in names}
            case = Case(model.SerializeToString(), fed)
            for opinion in (by_cpu, by_reference):
                with ignoring_failures():  # the CPU EP need not be installed
                    opinion(case)
    return " ".join([_IMPORTED, *(name for name in sys.modules if name not in before)])
