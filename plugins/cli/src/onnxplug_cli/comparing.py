"""``onnxplug compare``: whether two choices of EPs agree on a model, and where not."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onnxplug.escape import escape
from onnxplug_cli.failure import CommandFailed, UsageError
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
    check_ep_options,
    open_session,
)
from onnxplug_cli.progress import Progress
from onnxplug_cli.text import (
    plural,
    print_json,
    print_table,
    say,
    say_wrapped,
    shape_text,
)
from onnxplug_cli.values import bound, names

if TYPE_CHECKING:
    from onnxplug import InferenceSession
    from onnxplug_cli.comparison import Comparison, Difference, Divergence

_REFERENCE: Final = ["cpu"]

_MOST_NODES: Final = 10
"""That are listed for people where the two part."""

_EPILOG: Final = """\
examples:
  onnxplug compare model.onnx --ep cuda
  onnxplug compare model.onnx inputs.npz --ep cuda,cpu --ep openvino --rtol 1e-2
  onnxplug compare model.onnx --ep cuda --bisect --save wrong-node
"""


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "compare",
        parents=[common],
        help="compare what a model gives on two choices of EPs",
        description="Compare what a model gives on two choices of EPs, of which the "
        "second is the reference. The exit code is 1 if an output differs beyond "
        "tolerance.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_argument(parser)
    parser.add_argument(
        "--ep",
        metavar="NAME[,NAME]",
        type=names,
        action="append",
        required=True,
        help="the EPs in question, best first; again: the reference (default: cpu)",
    )
    add_ep_option_argument(parser)
    add_library_argument(parser)
    add_feed_arguments(parser, default=RANDOM)
    allowed = parser.add_argument_group("tolerance")
    allowed.add_argument(
        "--rtol",
        metavar="X",
        type=bound,
        help="how far an element may be, relative to the reference's "
        "(default: by its type)",
    )
    allowed.add_argument(
        "--atol",
        metavar="X",
        type=bound,
        help="how far it may be besides (default: by its type)",
    )
    search = parser.add_argument_group("finding where they part")
    search.add_argument(
        "--bisect",
        action="store_true",
        help="find the first node that differs, by runs that look at values on the way",
    )
    search.add_argument(
        "--save",
        metavar="DIR",
        help="with --bisect: write that node to DIR, as a model with its inputs",
    )
    parser.set_defaults(command=_compare, policy=None, place=[], require=[])


def _compare(arguments: argparse.Namespace) -> int:
    from onnxplug_cli.comparison.outcome import compare_sides, open_sides

    choices = _choices(arguments)
    _check_folder(arguments)

    def opened(model: Any, choice: Sequence[str]) -> InferenceSession:
        return open_session(arguments, choice, model=model)

    with open_sides(
        arguments.model, choices, opened, arguments.rtol, arguments.atol
    ) as sides:
        check_ep_options(arguments, sides.sessions)
        metadata = sides.sessions[0].get_modelmeta().custom_metadata_map
        feeds = read_feeds(
            sides.sessions[0], Scaling.of(metadata, None, None), arguments
        )
        inputs = {name: feed.array for name, feed in feeds.items()}
        with Progress("comparing"):
            found = compare_sides(
                sides, arguments.model, inputs, bisect=arguments.bisect
            )
    saved = False
    if arguments.save is not None and found.divergence is not None:
        saved = _save(found.divergence.innermost, arguments, choices)
    if arguments.json:
        print_json(_data(arguments, choices, feeds, found, saved=saved))
    else:
        _print(arguments, choices, feeds, found, saved=saved)
    return 0 if found.agrees else 1


def _choices(arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    first, *others = arguments.ep
    if len(others) > 1:
        raise UsageError(
            f"--ep is said {len(arguments.ep)} times; expected once, or twice: the EPs "
            "in question, and the reference"
        )
    return first, others[0] if others else _REFERENCE


# Saving...


def _check_folder(arguments: argparse.Namespace) -> None:
    """Refuse what cannot be written to before much time is spent."""
    if arguments.save is None:
        return
    if not arguments.bisect:
        raise UsageError("--save writes what --bisect finds; say --bisect, too")
    folder = Path(arguments.save)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise CommandFailed(
            f"{escape(folder)} is no empty folder; name another with --save"
        )


def _save(
    divergence: Divergence,
    arguments: argparse.Namespace,
    choices: tuple[Sequence[str], Sequence[str]],
) -> bool:
    """Whether it was written; if not, the notes say why there is nothing to write."""
    if divergence.reproduction is None:
        return False
    words = ["onnxplug", "compare", "model.onnx", "inputs.npz"]
    for choice in choices:
        words += ["--ep", ",".join(choice)]
    for ep, key, value in arguments.ep_option:
        words += ["--ep-option", f"{ep}.{key}={value}"]
    for library in arguments.library:
        words += ["--library", str(Path(library).absolute())]
    for option in ("rtol", "atol"):
        value = getattr(arguments, option)
        if value is not None:
            words += [f"--{option}", repr(value)]
    divergence.reproduction.save(Path(arguments.save), shlex.join(words))
    return True


# Reports...


def _print(
    arguments: argparse.Namespace,
    choices: tuple[Sequence[str], Sequence[str]],
    feeds: Mapping[str, Feed],
    found: Comparison,
    *,
    saved: bool,
) -> None:
    print_feeds(feeds)
    say()
    _print_differences(found.outputs)
    say()
    sides = " against ".join(escape(",".join(choice)) for choice in choices)
    wrong = [each for each in found.outputs if not each.agrees]
    if not wrong:
        say(f"{sides}: all outputs agree within tolerance")
        return
    outputs = plural(len(found.outputs), "output")
    say(f"{sides}: {len(wrong)} of {outputs} beyond tolerance")
    for each in wrong:
        say_wrapped(str(each), "  ")
    if found.divergence is not None:
        say()
        runs = plural(found.runs, "run")
        _print_divergence(found.divergence, f", found in {runs} of each")
        if saved:
            say(f"  Written to {escape(arguments.save)}.")
    elif found.not_found:
        say_wrapped(f"Where they part was not found: {found.not_found}.")


def _print_differences(differences: Sequence[Difference]) -> None:
    rows = [
        (
            each.name,
            f"{each.dtype}{shape_text(each.shape)}" if each.dtype else each.unlike,
            f"{each.beyond} of {each.elements}",
            str(each.unequal),
            f"{each.largest_absolute:.3g}",
            f"{each.largest_relative:.3g}",
            "" if each.largest_ulps is None else str(each.largest_ulps),
        )
        for each in differences
    ]
    header = ("OUTPUT", "VALUE", "BEYOND", "UNEQUAL", "ABS", "REL", "ULP")
    print_table(header, rows, right=header[2:])


def _print_divergence(divergence: Divergence, found: str) -> None:
    """Args:
    found: how it was found, after the name of what was.
    """
    first, *others = divergence.nodes
    where = " against ".join(name_to_write(ep) for ep in divergence.eps if ep)
    on = f" ({where})" if where else ""
    if others:
        number = plural(len(divergence.nodes), "node")
        say_wrapped(f"They part within {number}{on}{found}:")
        for node in divergence.nodes[:_MOST_NODES]:
            say(f"  {node}")
        if (more := len(divergence.nodes) - _MOST_NODES) > 0:
            say(f"  and {more} more")
    else:
        say_wrapped(f"They part at {first}{on}{found}.")
    for each in divergence.outputs:
        say_wrapped(str(each), "  ")
    say_wrapped(divergence.cause.text, "  ")
    for note in divergence.notes:
        say_wrapped(f"Note: {note}.", "  ")
    if divergence.inside is not None:
        what, within = divergence.inside
        _print_divergence(within, f", in its {what}")


def _data(
    arguments: argparse.Namespace,
    choices: tuple[Sequence[str], Sequence[str]],
    feeds: Mapping[str, Feed],
    found: Comparison,
    *,
    saved: bool,
) -> dict[str, Any]:
    divergence = found.divergence
    return {
        "model": arguments.model,
        "providers": list(choices[0]),
        "reference": list(choices[1]),
        "inputs": feed_data(feeds),
        "agrees": found.agrees,
        "outputs": [_difference_data(each) for each in found.outputs],
        "runs": found.runs,
        "divergence": None if divergence is None else _divergence_data(divergence),
        "not_found": found.not_found,
        "saved": arguments.save if saved else None,
    }


def _divergence_data(divergence: Divergence) -> dict[str, Any]:
    data = {
        "nodes": list(divergence.nodes),
        "eps": list(divergence.eps),
        "outputs": [_difference_data(each) for each in divergence.outputs],
        "cause": str(divergence.cause),
        "notes": list(divergence.notes),
        "inside": None,
    }
    if divergence.inside is not None:
        what, within = divergence.inside
        data["inside"] = {"what": what, **_divergence_data(within)}
    return data


def _difference_data(difference: Difference) -> dict[str, Any]:
    data = asdict(difference)
    data["tolerance"] = difference.tolerance._asdict()
    data["agrees"] = difference.agrees
    # JSON has no infinity and no NaN
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in data.items()
    }
