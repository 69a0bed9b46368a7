"""``onnxplug calibrate``: which EPs are fastest for a model here, kept for sessions."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onnxplug.duration import duration
from onnxplug_cli.feeds import (
    RANDOM,
    Feed,
    add_feed_arguments,
    feed_data,
    print_feeds,
    read_feeds,
)
from onnxplug_cli.image import Scaling
from onnxplug_cli.library import add_library_argument
from onnxplug_cli.names import name_to_write
from onnxplug_cli.opening import (
    add_ep_option_argument,
    add_model_argument,
    add_pin_arguments,
    open_session,
    session_options,
)
from onnxplug_cli.progress import Progress
from onnxplug_cli.text import print_json, print_table, say, say_wrapped
from onnxplug_cli.values import positive, seconds

if TYPE_CHECKING:
    from onnxplug.calibration.plan import Plan
    from onnxplug.calibration.verdict import Verdict

_SECONDS = 1.0
_TIMEOUT = 300.0

_EPILOG = """\
Sessions of policy="max_performance" go by it, of the same model, options and threads,
as long as EPs, drivers and machine stay what they are.

examples:
  onnxplug calibrate model.onnx --dim N=8
  onnxplug calibrate model.onnx inputs.npz --intra-op-threads 4 --json
"""


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "calibrate",
        parents=[common],
        help="time the EPs for a model, for policy max_performance",
        description="Time, for a model, the EPs that the policy max_performance may "
        "choose, and keep which is fastest.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_argument(parser)
    add_ep_option_argument(parser)
    add_pin_arguments(parser)
    add_library_argument(parser)
    add_feed_arguments(parser, default=RANDOM)
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=seconds,
        default=_SECONDS,
        help=f"time each choice of EPs for S seconds (default: {_SECONDS:g})",
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=seconds,
        default=_TIMEOUT,
        help="give an EP up that takes more than S seconds to load the model, or for "
        f"some runs (default: {_TIMEOUT:g})",
    )
    parser.add_argument(
        "--intra-op-threads",
        metavar="N",
        type=positive,
        help="threads that a node may use, as sessions will have them",
    )
    parser.set_defaults(command=_calibrate, ep=None, policy="max_performance")


def _calibrate(arguments: argparse.Namespace) -> None:
    from onnxplug import calibrate

    options = session_options(arguments)
    if arguments.intra_op_threads:
        options.intra_op_num_threads = arguments.intra_op_threads
    # of this one only the inputs are asked for, and options that say nothing
    with open_session(arguments, ["cpu"]) as session:
        metadata = session.get_modelmeta().custom_metadata_map
        feeds = read_feeds(session, Scaling.of(metadata, None, None), arguments)
    with Progress("calibrating") as progress:
        verdict = calibrate(
            arguments.model,
            options,
            inputs={name: feed.array for name, feed in feeds.items()},
            seconds=arguments.seconds,
            timeout=arguments.timeout,
            progress=progress.tell,
        )
    if arguments.json:
        print_json(
            {
                "model": arguments.model,
                "inputs": feed_data(feeds),
                **verdict.to_dict(),
            }
        )
    else:
        _print(feeds, verdict)


def _print(feeds: Mapping[str, Feed], verdict: Verdict) -> None:
    print_feeds(feeds)
    say()
    rows = [
        [
            _label(each.plan),
            *(
                [duration(each.median), duration(each.fastest), str(each.runs)]
                if each.runs
                else ["", "", "0"]
            ),
            duration(each.load) if each.load else "",
        ]
        for each in verdict.measured
    ]
    header = ["PLAN", "MEDIAN", "MIN", "RUNS", "LOAD"]
    print_table(header, rows, right=header[1:], wrap="PLAN")
    say()
    for each in verdict.measured:
        if each.failure:
            say_wrapped(f"{_label(each.plan)} failed: {each.failure}")
        elif each.difference:
            say_wrapped(f"{_label(each.plan)} gives other results: {each.difference}")
    say_wrapped(f"chosen: {_label(verdict.chosen)}")
    if verdict.chosen != verdict.static:
        say_wrapped(f"the policy's first choice: {_label(verdict.static)}")
    if verdict.kept:
        say_wrapped(f"it is not kept for sessions: {verdict.kept}")


def _label(plan: Plan) -> str:
    """A plan with the shortest names of its EPs."""
    words = str(plan)
    for share in plan.shares:
        words = words.replace(share.ep, name_to_write(share.ep))
    return words
