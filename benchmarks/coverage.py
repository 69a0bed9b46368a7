"""What the CPU EP does not compile: nodes on arrays, by operator, and what they take.

Models are those of ``compare.py`` and ``vision.py``; those that tests run, whichever
they are, as each is run there; and the models of single operators of ONNX's own suite.
Each is run a few times with one thread, profiled.  Prints what is on arrays, most
frequent first, and writes all of it as JSON.

    python benchmarks/coverage.py [--models NAME …] [--tests PATH …] [--suite]
        [--output FILE]

Without arguments they are all but those of tests.  ``--tests tests/exporters`` are
models as exporters write them, and need what ``make .venv/exporters.stamp`` installs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import onnx
from machine import describe_machine
from models import MODELS

import onnxplug

Feeds: TypeAlias = Mapping[str, Any]

RUNS: Final = 5
COMPILED: Final = "compiled"
PROVIDER: Final = "CPUExecutionProvider"


class Model(NamedTuple):
    """A model and the inputs of one run."""

    name: str
    source: str | bytes
    feeds: Feeds


def survey(model: Model) -> dict[str, Any]:
    """How many nodes are in which tier, what is on arrays, and its share of time."""
    with tempfile.TemporaryDirectory() as folder:
        options = onnxplug.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "trace")
        session = onnxplug.InferenceSession(model.source, options, providers=[PROVIDER])
        for _ in range(RUNS):
            session.run(None, dict(model.feeds))
        nodes = [node for node in session.explain().nodes if node.tier]
        path = session.end_profiling()
        events = json.loads(Path(path).read_text(encoding="utf-8"))
        session.close()
    calls, share = _on_arrays(events)
    return {
        "tiers": dict(Counter(node.tier for node in nodes)),
        "share_on_arrays": share,
        "on_arrays": [
            {"operator": o, "dtypes": d, "note": n, "nodes": count}
            for (o, d, n), count in calls.most_common()
        ],
    }


def _on_arrays(events: Iterable[Mapping[str, Any]]) -> tuple[Counter[Any], float]:
    """Of the fastest run: calls on arrays by operator, dtypes and note, and their
    share of its time."""
    events = [event for event in events if event["ph"] == "X"]
    runs = [event for event in events if event["name"] == "model_run"]
    fastest = min(runs, key=lambda event: float(event["dur"]))
    calls: Counter[tuple[str, str, str]] = Counter()
    taken = 0.0
    for event in events:
        facts = event["args"]
        inside = 0 <= event["ts"] - fastest["ts"] <= fastest["dur"]
        tier = facts.get("tier", COMPILED)
        if event["cat"] != "Node" or not inside or tier == COMPILED:
            continue
        taken += event["dur"]
        dtypes = " ".join(dtype for each in facts["input_type_shape"] for dtype in each)
        calls[facts["op_name"], dtypes, facts.get("note", "")] += 1
    return calls, taken / max(fastest["dur"], 1)


def networks(names: Sequence[str]) -> Iterator[Model]:
    """Those of ``compare.py``, and of ``vision.py`` where there is PyTorch."""
    for name, build in MODELS.items():
        if not names or name in names:
            case = build()
            yield Model(name, case.model.SerializeToString(), case.feeds)
    if importlib.util.find_spec("torch") is None:
        return
    from zoo import SEQUENCES, ZOO, exported

    for name, network in {**SEQUENCES, **ZOO}.items():
        if (not names or name in names) and name not in MODELS:
            files = exported(network, name)
            yield Model(name, str(files.model), dict(np.load(files.feeds)))


def suite() -> Iterator[Model]:
    """ONNX's models of single operators; all inputs but the first one of each are
    constants, as models have axes, shapes and weights."""
    from onnx.backend.test.loader import load_model_tests

    for case in load_model_tests(kind="node"):
        graph = case.model.graph
        feeds = {}
        for place, value in enumerate(case.data_sets[0][0]):
            is_array = isinstance(value, np.ndarray)
            if is_array and value.dtype.kind not in "OUV" and place:
                name = graph.input[place].name
                graph.initializer.append(onnx.numpy_helper.from_array(value, name))
            elif isinstance(value, onnx.TensorProto):
                feeds[graph.input[place].name] = onnx.numpy_helper.to_array(value)
            else:
                feeds[graph.input[place].name] = value
        for constant in graph.initializer:
            graph.input.remove(next(i for i in graph.input if i.name == constant.name))
        yield Model(case.name, case.model.SerializeToString(), feeds)


class Watched:
    """A plugin of pytest that surveys each model that a test runs compiled, once.

    Attributes:
        results: by test, and the number of the model in it.
    """

    def __init__(self) -> None:
        self.results: dict[str, Any] = {}
        self._seen: set[int] = set()

    def pytest_runtest_call(self, item: Any) -> None:
        """Have the sessions of *item* tell of their runs."""
        watch = self
        made = onnxplug.InferenceSession

        class Session(made):  # type: ignore[valid-type,misc]
            def __init__(self, source: Any, *args: Any, **named: Any) -> None:
                super().__init__(source, *args, **named)
                chosen = self.get_provider_options().get(PROVIDER, {})
                told = self.get_providers() == [PROVIDER]
                off = str(chosen.get("compile", True)).lower() in ("0", "false")
                self._source = source if told and not off else None

            def run(self, names: Any, feeds: Any, *args: Any) -> Any:
                found = super().run(names, feeds, *args)
                source, self._source = self._source, None
                if source is not None:
                    onnxplug.InferenceSession = made
                    watch.note(item.nodeid, source, feeds)
                    onnxplug.InferenceSession = Session
                return found

        onnxplug.InferenceSession = Session  # type: ignore[misc]
        item.addfinalizer(lambda: setattr(onnxplug, "InferenceSession", made))

    def note(self, test: str, source: Any, feeds: Feeds) -> None:
        """Survey one model of a test."""
        content = source if isinstance(source, bytes) else Path(source).read_bytes()
        if hash(content) in self._seen:
            return
        self._seen.add(hash(content))
        name = f"{test} {sum(key.startswith(test) for key in self.results)}"
        source = source if isinstance(source, bytes) else str(source)
        self.results[name] = _surveyed(Model(name, source, feeds))


def _surveyed(model: Model) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return survey(model)


def of_tests(paths: Sequence[str]) -> dict[str, Any]:
    """Surveys of the models that tests run."""
    import pytest

    watched = Watched()
    pytest.main(["-q", "-p", "no:cacheprovider", "--tb=no", *paths], plugins=[watched])
    return watched.results


def summed(results: Mapping[str, Any]) -> dict[str, Any]:
    """Of all models together: nodes by tier, and what is on arrays."""
    tiers: Counter[str] = Counter()
    calls: Counter[tuple[str, str, str]] = Counter()
    models: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
    for name, result in results.items():
        tiers.update(result["tiers"])
        for call in result["on_arrays"]:
            key = call["operator"], call["dtypes"], call["note"]
            calls[key] += call["nodes"]
            models[key].add(name)
    shares = {
        name: result["share_on_arrays"]
        for name, result in results.items()
        if result["share_on_arrays"] > 0.02
    }
    return {
        "models": len(results),
        "compiled_whole": sum(
            set(result["tiers"]) == {COMPILED} for result in results.values()
        ),
        "tiers": dict(tiers),
        "more_than_2_percent_on_arrays": len(shares),
        "on_arrays": [
            {
                "operator": o,
                "dtypes": d,
                "note": n,
                "nodes": c,
                "models": len(models[o, d, n]),
            }
            for (o, d, n), c in calls.most_common()
        ],
    }


def main() -> None:
    """Survey, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", metavar="NAME")
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH")
    parser.add_argument("--suite", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("coverage.json"))
    arguments = parser.parse_args()
    if not arguments.tests and not arguments.suite and arguments.models is None:
        arguments.models, arguments.suite = [], True
    sections: dict[str, Callable[[], dict[str, Any]]] = {}
    if arguments.models is not None:
        sections["networks"] = lambda: {
            model.name: _surveyed(model) for model in networks(arguments.models)
        }
    if arguments.tests:
        sections["tests"] = lambda: of_tests(arguments.tests)
    if arguments.suite:
        sections["suite"] = lambda: {model.name: _surveyed(model) for model in suite()}
    report: dict[str, Any] = {"machine": describe_machine()}
    for section, results in sections.items():
        models = results()
        report[section] = {"sum": summed(models), "models": models}
        _print(section, report[section]["sum"])
    text = json.dumps(report, indent=2, ensure_ascii=False)
    arguments.output.write_text(text + "\n", encoding="utf-8")


def _print(section: str, total: Mapping[str, Any]) -> None:
    print(
        f"{section}: {total['models']} models, {total['compiled_whole']} compiled "
        f"whole; nodes by tier {total['tiers']}; "
        f"{total['more_than_2_percent_on_arrays']} with more than 2 % of their time "
        "on arrays"
    )
    for call in total["on_arrays"]:
        print(
            f"  {call['nodes']:5} in {call['models']:4}  {call['operator']} "
            f"({call['dtypes']}): {call['note']}"
        )


if __name__ == "__main__":
    main()
