"""``onnxplug run``: feeds a model once, and reports what came out, where, how fast."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onnxplug.duration import duration
from onnxplug.escape import escape
from onnxplug_cli.failure import UsageError
from onnxplug_cli.feeds import (
    Feed,
    add_feed_arguments,
    feed_data,
    print_feeds,
    read_feeds,
)
from onnxplug_cli.image import Scaling, parse_factor, read_labels
from onnxplug_cli.npz import write_npz
from onnxplug_cli.opening import (
    add_session_arguments,
    check_ep_options,
    open_session,
)
from onnxplug_cli.text import (
    bar,
    plural,
    print_json,
    print_table,
    say,
    shape_text,
)
from onnxplug_cli.values import count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxplug import InferenceSession

_EPILOG: Final = """\
examples:
  onnxplug run digits.onnx seven.png
  onnxplug run model.onnx random --dim N=8 --output out.npz
  onnxplug run model.onnx --input ids=ids.npy --input mask=random --ep cuda,cpu
"""


@dataclass(frozen=True, slots=True)
class Class:
    """One class, and what the model says for it."""

    index: int
    label: str
    score: float


@dataclass(frozen=True, slots=True)
class Times:
    """How long things took, in seconds."""

    load: float
    first_run: float
    median_run: float | None
    repeat: int


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "run",
        parents=[common],
        help="run a model on a picture, on arrays, or on numbers at random",
        description="Run a model on a picture, on arrays, or on numbers at random.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_session_arguments(parser)
    add_feed_arguments(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the outputs to this .npz file"
    )
    parser.add_argument(
        "--repeat",
        metavar="N",
        type=count,
        default=5,
        help="run N times more, for the median time (default: 5)",
    )
    picture = parser.add_argument_group("pictures")
    picture.add_argument(
        "--scale",
        metavar="X",
        type=_factor,
        help="what pixels from 0 to 255 are multiplied by "
        "(default: the model's metadata input_scale, or 1/255)",
    )
    picture.add_argument(
        "--invert",
        action=argparse.BooleanOptionalAction,
        help="dark is large (default: the model's metadata input_invert, or no)",
    )
    picture.add_argument(
        "--top",
        metavar="N",
        type=count,
        default=3,
        help="show the N likeliest classes; 0 shows the outputs (default: 3)",
    )
    picture.add_argument(
        "--labels",
        metavar="FILE",
        help="names of the classes, one a line or a JSON list "
        "(default: the model's metadata labels)",
    )
    parser.set_defaults(command=_run)


def _factor(text: str) -> float:
    try:
        return parse_factor(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number, such as 0.5 or 1/255"
        ) from None


def _run(arguments: argparse.Namespace) -> None:
    from onnxplug import InferenceSession  # noqa: F401 - before time counts

    started = time.perf_counter()
    session = open_session(arguments)
    load = time.perf_counter() - started
    check_ep_options(arguments, [session])

    metadata = session.get_modelmeta().custom_metadata_map
    scaling = Scaling.of(metadata, arguments.scale, arguments.invert)
    feeds = read_feeds(session, scaling, arguments)
    labels = read_labels(arguments.labels, metadata)
    outputs, times = _measure(session, feeds, load, arguments.repeat)
    if arguments.output is not None:
        _write(Path(arguments.output), outputs)

    classes = []
    if any(feed.is_picture for feed in feeds.values()) and arguments.top:
        classes = _classes(outputs, labels, arguments)
    if arguments.json:
        data = _data(feeds, outputs, classes, session, times)
        print_json({"model": arguments.model, **data})
    else:
        _print(feeds, outputs, classes, session, times)


def _measure(
    session: InferenceSession, feeds: Mapping[str, Feed], load: float, repeat: int
) -> tuple[dict[str, Any], Times]:
    arrays = {name: feed.array for name, feed in feeds.items()}
    names = [output.name for output in session.get_outputs()]
    seconds = []
    for _ in range(1 + repeat):
        started = time.perf_counter()
        results = session.run(names, arrays)
        seconds.append(time.perf_counter() - started)
    times = Times(
        load=load,
        first_run=seconds[0],
        median_run=statistics.median(seconds[1:]) if repeat else None,
        repeat=repeat,
    )
    return dict(zip(names, results, strict=True)), times


def _write(path: Path, outputs: Mapping[str, Any]) -> None:
    """An .npz file of *outputs*."""
    arrays = {name: value for name, value in outputs.items() if _is_array(value)}
    if len(arrays) < len(outputs):
        others = ", ".join(repr(name) for name in outputs if name not in arrays)
        raise UsageError(f"--output takes arrays, which {others} are not")
    write_npz(path, arrays)


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _is_numeric(value: Any) -> bool:
    return _is_array(value) and value.dtype.kind not in "OSUTc" and value.size > 0


# Classes...


def _classes(
    outputs: Mapping[str, Any], labels: Sequence[str], arguments: argparse.Namespace
) -> list[Class]:
    """The likeliest classes, by the first output that is one row of scores."""
    rows = (
        value.reshape(-1).astype("float64")
        for value in outputs.values()
        if _is_numeric(value) and value.size == max(value.shape, default=0) > 1
    )
    scores: NDArray[Any] | None = next(rows, None)
    if scores is None:
        return []
    if labels and len(labels) != len(scores):
        if arguments.labels is not None:
            raise UsageError(
                f"{escape(arguments.labels)} names {plural(len(labels), 'class')}, "
                f"but the model tells {len(scores)} apart"
            )
        labels = ()
    best = scores.argsort(kind="stable")[::-1][: arguments.top]
    return [
        Class(int(i), labels[i] if labels else str(i), float(scores[i])) for i in best
    ]


def _print_classes(classes: Sequence[Class]) -> None:
    # scores of any other range, such as logits, are shown as they are
    are_shares = all(0 <= item.score <= 1 for item in classes)
    labels = [escape(item.label) for item in classes]
    width = max(map(len, labels))
    for item, label in zip(classes, labels, strict=True):
        label = label.ljust(width)
        if are_shares:
            say(f"  {label}  {item.score:6.1%}  {bar(item.score)}".rstrip())
        else:
            say(f"  {label}  {item.score:10.4g}")


# Reports...


def _print(
    feeds: Mapping[str, Feed],
    outputs: Mapping[str, Any],
    classes: Sequence[Class],
    session: InferenceSession,
    times: Times,
) -> None:
    print_feeds(feeds)
    say()
    if classes:
        _print_classes(classes)
    else:
        _print_outputs(outputs)
    say()
    for part in session.explain().partitions:
        say(f"{plural(part.nodes, 'node')} on {part.ep} ({part.device})")
    line = f"loaded in {duration(times.load)}, first run {duration(times.first_run)}"
    if times.median_run is not None:
        median = duration(times.median_run)
        line += f", then {median} (median of {times.repeat})"
    say(line)


def _print_outputs(outputs: Mapping[str, Any]) -> None:
    rows = []
    for name, value in outputs.items():
        summary = _summary(value)
        figures = (summary[key] for key in ("min", "mean", "max"))
        rows.append(
            (
                name,
                summary["type"],
                shape_text(summary["shape"]) if _is_array(value) else "",
                *("" if figure is None else f"{figure:.6g}" for figure in figures),
            )
        )
    header = ("OUTPUT", "TYPE", "SHAPE", "MIN", "MEAN", "MAX")
    print_table(header, rows, right=("MIN", "MEAN", "MAX"))


def _summary(value: Any) -> dict[str, Any]:
    """Type, shape, and the least, mean and largest number, where there are numbers."""
    facts: dict[str, Any] = {"type": "", "shape": None}
    facts |= {"min": None, "mean": None, "max": None}
    if not _is_array(value):
        facts["type"] = _describe(value)
        return facts
    facts["type"] = "string" if value.dtype.kind in "OSUT" else value.dtype.name
    facts["shape"] = list(value.shape)
    if _is_numeric(value):
        numbers = value.astype("float64")
        facts["min"] = float(numbers.min())
        facts["mean"] = float(numbers.mean())
        facts["max"] = float(numbers.max())
    return facts


def _describe(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return f"map of {len(value)}"
    return f"sequence of {len(value)}"


def _data(
    feeds: Mapping[str, Feed],
    outputs: Mapping[str, Any],
    classes: Sequence[Class],
    session: InferenceSession,
    times: Times,
) -> dict[str, Any]:
    return {
        "inputs": feed_data(feeds),
        "outputs": [
            {"name": name, **_finite(_summary(value))}
            for name, value in outputs.items()
        ],
        "classes": [_finite(asdict(item)) for item in classes],
        "partitions": [
            {"ep": part.ep, "device": part.device, "nodes": part.nodes}
            for part in session.explain().partitions
        ],
        "seconds": asdict(times),
    }


def _finite(facts: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no infinity and no NaN; they become null."""
    return {
        key: None if isinstance(value, float) and value - value != 0 else value
        for key, value in facts.items()
    }
