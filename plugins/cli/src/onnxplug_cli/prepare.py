"""``onnxplug prepare``: has EPs make, before a run, what they make by input shapes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any, Final

from onnxplug.duration import duration
from onnxplug.escape import escape
from onnxplug_cli.failure import UsageError
from onnxplug_cli.names import name_to_write
from onnxplug_cli.opening import (
    add_session_arguments,
    check_ep_options,
    open_session,
)
from onnxplug_cli.progress import Progress
from onnxplug_cli.text import print_json, print_table, say, shape_text
from onnxplug_cli.values import assignment, count

_EPILOG: Final = """\
examples:
  onnxplug prepare model.onnx --ep openvino --shape ids=8,128 --shape mask=8,128
  onnxplug prepare model.onnx --shape x=1,3,224,224 --shape x=8,3,224,224
"""

_ShapeSet = dict[str, tuple[int, ...]]


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "prepare",
        parents=[common],
        help="have EPs make, before a run, what they make by input shapes",
        description="Have EPs make, before a run, what they make by input shapes. It "
        "outlasts the command where an EP, or onnxplug for it, keeps it on disk.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_session_arguments(parser)
    parser.add_argument(
        "--shape",
        metavar="NAME=SIZES",
        type=_shape,
        action="append",
        required=True,
        help="the shape of an input, such as ids=8,128; where an input is named again, "
        "another set of shapes begins",
    )
    parser.set_defaults(command=_prepare)


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, sizes = assignment(text)
    return name, tuple(count(size.strip()) for size in sizes.split(","))


def shape_sets(said: Sequence[tuple[str, tuple[int, ...]]]) -> list[_ShapeSet]:
    """What was said, as sets in which no input is named twice."""
    sets: list[_ShapeSet] = [{}]
    for name, shape in said:
        if name in sets[-1]:
            sets.append({})
        sets[-1][name] = shape
    return sets


def _prepare(arguments: argparse.Namespace) -> None:
    from onnxplug.errors import InputError

    session = open_session(arguments)
    check_ep_options(arguments, [session])
    results = []
    for shapes in shape_sets(arguments.shape):
        with Progress(f"preparing for {_in_words(shapes)}"):
            started = time.perf_counter()
            try:
                prepared = session.prepare(shapes)
            except InputError as error:
                raise UsageError(str(error)) from error
        results.append((shapes, time.perf_counter() - started, prepared))
    session.close()
    if arguments.json:
        sets = [
            {
                "shapes": shapes,
                "seconds": seconds,
                "partitions": [each.to_dict() for each in prepared],
            }
            for shapes, seconds, prepared in results
        ]
        print_json({"model": arguments.model, "sets": sets})
        return
    for shapes, seconds, prepared in results:
        ready = sum(each.ready for each in prepared)
        of = f"{ready} of {len(prepared)} partitions ready"
        say(f"{escape(_in_words(shapes))}: {of} in {duration(seconds)}")
        rows = [
            [
                str(each.partition),
                name_to_write(each.ep),
                "ready" if each.ready else escape(each.reason),
            ]
            for each in prepared
        ]
        print_table(["PARTITION", "EP", "STATE"], rows)


def _in_words(shapes: _ShapeSet) -> str:
    return ", ".join(f"{name}{shape_text(shape)}" for name, shape in shapes.items())
