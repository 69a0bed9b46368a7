"""``onnxplug bench``: how fast a model runs, on one choice of EPs or on several."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from onnxplug.duration import duration
from onnxplug_cli.energy import Meter
from onnxplug_cli.feeds import (
    RANDOM,
    Feed,
    add_feed_arguments,
    feed_data,
    print_feeds,
    read_feeds,
)
from onnxplug_cli.image import Scaling
from onnxplug_cli.measure import Latency, Runner, measure
from onnxplug_cli.memory import Memory, memory_of
from onnxplug_cli.names import name_to_write
from onnxplug_cli.opening import (
    add_session_arguments,
    check_ep_options,
    open_session,
    session_request,
)
from onnxplug_cli.plot import check_plot, plot
from onnxplug_cli.profile import RunProfile, print_profile, read_profile
from onnxplug_cli.progress import Progress
from onnxplug_cli.text import (
    data_size,
    plural,
    print_json,
    print_table,
    say,
)
from onnxplug_cli.values import count, names, positive, seconds

if TYPE_CHECKING:
    from onnxplug import InferenceSession

_SECONDS: Final = 2.0

_PROFILED_SECONDS: Final = 1.0
"""About how long runs are profiled, unless their number is given."""

_LEAST_RUNS: Final = 5
"""Runs that are profiled at least, unless their number is given."""

_PROFILED_RUNS: Final = 1000
"""Runs that are profiled at most, unless their number is given."""

_EPILOG: Final = """\
examples:
  onnxplug bench model.onnx --dim N=8
  onnxplug bench model.onnx --ep cpu --ep openvino --seconds 10 --plot bench.svg
  onnxplug bench model.onnx --ep cuda --threads 4 --json
  onnxplug bench model.onnx --profile
"""


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured of one session, times in seconds.

    Attributes:
        nodes: how many nodes each EP runs.
        runs: how many were measured, in all threads.
        ratio: of its median to that of the first session; ``None`` if nothing is
            compared.
        memory: what a process that has this session alone takes; ``None`` if that was
            not asked for.
        joules: that the machine spent for a run; ``None`` where it does not tell.
        profile: where the time goes, if that was asked for.
    """

    providers: list[str]
    nodes: dict[str, int]
    load: float
    first_run: float
    latency: Latency
    runs: int
    runs_per_second: float
    ratio: float | None
    memory: Memory | None = None
    joules: float | None = None
    profile: RunProfile | None = None


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "bench",
        parents=[common],
        help="measure how fast a model runs, and compare EPs",
        description="Measure how fast a model runs, and compare EPs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    choice = add_session_arguments(parser, several=True)
    choice.add_argument(
        "--compare",
        metavar="NAME[,NAME]",
        type=names,
        help="measure each of these EPs by itself, as --ep once for each does; "
        "the CPU EP has what they leave over",
    )
    add_feed_arguments(parser, default=RANDOM)
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument(
        "--repeat", metavar="N", type=positive, help="measure N runs in each thread"
    )
    amount.add_argument(
        "--seconds",
        metavar="S",
        type=seconds,
        default=_SECONDS,
        help=f"measure for S seconds, each EP (default: {_SECONDS:g})",
    )
    parser.add_argument(
        "--warmup",
        metavar="N",
        type=count,
        default=3,
        help="runs after the first that are not measured (default: 3)",
    )
    parser.add_argument(
        "--threads",
        metavar="N",
        type=positive,
        default=1,
        help="run in N threads at once, in one session (default: 1)",
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="then show where the time of runs goes, kernel by kernel",
    )
    parser.add_argument(
        "--no-memory",
        action="store_true",
        help="leave out how much memory is taken, which other processes measure",
    )
    parser.add_argument(
        "--plot",
        metavar="FILE",
        type=Path,
        help="draw how long runs take, too: a .png or .svg",
    )
    parser.set_defaults(command=_bench)


def _bench(arguments: argparse.Namespace) -> None:
    from onnxplug import InferenceSession  # noqa: F401 - before time counts

    if arguments.plot is not None:
        check_plot(arguments.plot)
    choices = _choices(arguments)
    sessions, loads = [], []
    for providers in choices:
        started = time.perf_counter()
        sessions.append(open_session(arguments, providers))
        loads.append(time.perf_counter() - started)
    check_ep_options(arguments, sessions)

    metadata = sessions[0].get_modelmeta().custom_metadata_map
    feeds = read_feeds(sessions[0], Scaling.of(metadata, None, None), arguments)
    inputs = {name: feed.array for name, feed in feeds.items()}
    meter = Meter.of_machine()
    runners = [Runner(session, inputs, meter) for session in sessions]
    with Progress("measuring") as progress:
        measure(
            runners,
            warmup=arguments.warmup,
            threads=arguments.threads,
            repeat=arguments.repeat,
            seconds=arguments.seconds,
            report=progress.tell,
        )
    results = _results(sessions, loads, runners)
    if arguments.profile or not arguments.no_memory:
        for session in sessions:
            session.close()
        results = [
            _looked_into(arguments, providers, inputs, result)
            for providers, result in zip(choices, results, strict=True)
        ]
    if arguments.plot is not None:
        labels = [_label(choice, r) for choice, r in zip(choices, results, strict=True)]
        title = Path(arguments.model).name
        plot(arguments.plot, title, labels, [runner.seconds for runner in runners])
    if arguments.json:
        print_json(_data(arguments, feeds, results, meter))
    else:
        _print(arguments, feeds, choices, results, meter)


def _choices(arguments: argparse.Namespace) -> list[list[str] | None]:
    """The EPs of each session; ``None`` where others than names choose them."""
    if arguments.compare:
        return [[name] for name in arguments.compare]
    return [*arguments.ep] if arguments.ep else [None]


def _label(choice: Sequence[str] | None, result: Result) -> str:
    """What a session is called."""
    if choice is not None and len(choice) > 1:
        return ",".join(choice)
    return name_to_write(result.providers[0])


def _results(
    sessions: Sequence[InferenceSession],
    loads: Sequence[float],
    runners: Sequence[Runner],
) -> list[Result]:
    latencies = [Latency.of(runner.seconds) for runner in runners]
    return [
        Result(
            providers=session.get_providers(),
            nodes=_nodes(session),
            load=load,
            first_run=runner.first,
            latency=latency,
            runs=runner.count,
            runs_per_second=runner.count / runner.busy,
            ratio=latency.median / latencies[0].median if len(runners) > 1 else None,
            joules=None if (spent := runner.joules) is None else spent / runner.count,
        )
        for session, load, runner, latency in zip(
            sessions, loads, runners, latencies, strict=True
        )
    ]


def _looked_into(
    arguments: argparse.Namespace,
    providers: Sequence[str] | None,
    inputs: Mapping[str, Any],
    result: Result,
) -> Result:
    """*result* with what others than the session that was measured tell."""
    if not arguments.no_memory:
        with Progress("measuring memory"):
            request = session_request(arguments, providers)
            result = replace(result, memory=memory_of(request, inputs))
    if arguments.profile:
        profile = _profile(arguments, providers, inputs, result)
        result = replace(result, profile=profile)
    return result


def _profile(
    arguments: argparse.Namespace,
    providers: Sequence[str] | None,
    inputs: Mapping[str, Any],
    result: Result,
) -> RunProfile:
    """Where the time of runs goes in another session like the one measured."""
    wanted = int(_PROFILED_SECONDS / max(result.latency.median, 1e-6))
    runs = arguments.repeat or min(max(wanted, _LEAST_RUNS), _PROFILED_RUNS)
    with TemporaryDirectory(prefix="onnxplug-bench-") as folder:
        trace = str(Path(folder, "trace"))
        with open_session(arguments, providers, trace=trace) as session:
            with Progress("profiling"):
                for _ in range(1 + arguments.warmup + runs):
                    session.run(None, inputs)
            return read_profile(Path(session.end_profiling()), runs)


def _nodes(session: InferenceSession) -> dict[str, int]:
    nodes: Counter[str] = Counter()
    for part in session.explain().partitions:
        nodes[part.ep] += part.nodes
    return dict(nodes)


def _print(
    arguments: argparse.Namespace,
    feeds: Mapping[str, Feed],
    choices: Sequence[Sequence[str] | None],
    results: Sequence[Result],
    meter: Meter,
) -> None:
    print_feeds(feeds)
    say()
    header = ["EP", "LOAD", "FIRST", "MEDIAN", "SPREAD", "MIN", "P90", "P99", "RUNS/S"]
    labels = [_label(each, r) for each, r in zip(choices, results, strict=True)]
    rows = [
        [
            label,
            duration(result.load),
            duration(result.first_run),
            *map(duration, result.latency),
            f"{result.runs_per_second:.1f}",
        ]
        for label, result in zip(labels, results, strict=True)
    ]
    if len(results) > 1:
        header.append("RATIO")
        for row, result in zip(rows, results, strict=True):
            row.append(f"{result.ratio:.2f}")
    print_table(header, rows, right=header[1:])
    say()
    for result in results:
        where = ", ".join(
            f"{plural(number, 'node')} on {ep}" for ep, number in result.nodes.items()
        )
        runs = plural(result.runs, "run")
        in_threads = f" in {arguments.threads} threads" if arguments.threads > 1 else ""
        say(f"{where or 'no node left to run'}: {runs}{in_threads}")
    _print_costs(arguments, labels, results, meter)
    for result in results:
        if result.profile is not None:
            say()
            if len(results) > 1:
                say(f"{result.providers[0]}: ", end="")
            print_profile(result.profile, result.latency.median)


def _print_costs(
    arguments: argparse.Namespace,
    labels: Sequence[str],
    results: Sequence[Result],
    meter: Meter,
) -> None:
    """What runs cost besides time."""
    if not arguments.no_memory:
        say()
    for label, result in zip(labels, results, strict=True):
        if (memory := result.memory) is None:
            continue
        told = f"not known, as {memory.missing}"
        if not memory.missing:
            told = (
                f"{data_size(memory.taken)} at most, beside {data_size(memory.rest)} "
                "of Python"
            )
        say(f"memory of {label}: {told}")
    if meter.missing:
        say(f"energy: not known, as {meter.missing}")
        return
    for label, result in zip(labels, results, strict=True):
        if result.joules is not None:
            say(f"energy of {label}: {result.joules:.3g} J a run, of the whole machine")


def _data(
    arguments: argparse.Namespace,
    feeds: Mapping[str, Feed],
    results: Sequence[Result],
    meter: Meter,
) -> dict[str, Any]:
    return {
        "model": arguments.model,
        "inputs": feed_data(feeds),
        "threads": arguments.threads,
        "warmup": arguments.warmup,
        "energy_missing": meter.missing,
        "results": [
            {
                "providers": result.providers,
                "nodes": result.nodes,
                "seconds": {
                    "load": result.load,
                    "first_run": result.first_run,
                    **result.latency._asdict(),
                },
                "runs": result.runs,
                "runs_per_second": result.runs_per_second,
                "ratio": result.ratio,
                "memory": None if result.memory is None else result.memory._asdict(),
                "joules": result.joules,
            }
            | ({"profile": result.profile.to_dict()} if result.profile else {})
            for result in results
        ],
    }
