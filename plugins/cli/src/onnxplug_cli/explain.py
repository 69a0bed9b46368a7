"""``onnxplug explain``: where each node of a model runs, and why not elsewhere."""

from __future__ import annotations

import argparse
import difflib
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from onnxplug.escape import escape
from onnxplug_cli.failure import CommandFailed, UsageError
from onnxplug_cli.names import name_to_write
from onnxplug_cli.opening import (
    add_session_arguments,
    check_ep_options,
    open_session,
)
from onnxplug_cli.progress import Progress
from onnxplug_cli.text import (
    print_json,
    print_table,
    say,
)
from onnxplug_cli.values import names, size

if TYPE_CHECKING:
    from onnxplug import InferenceSession
    from onnxplug.partition.placements import NodePlacement
    from onnxplug.partition.report import Explanation


_PROFILED_RUNS: Final = 6
"""The first of which makes plans, and is left out."""


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    summary = "show on which EP each node of a model runs, and why"
    parser = commands.add_parser(
        "explain",
        parents=[common],
        help=summary,
        description=f"{summary.capitalize()}.",
    )
    add_session_arguments(parser)
    parser.add_argument(
        "--dim",
        metavar="NAME=SIZE",
        type=size,
        action="append",
        default=[],
        help="fix the size of a symbolic dimension; may be repeated",
    )
    detail = parser.add_mutually_exclusive_group()
    detail.add_argument("--nodes", action="store_true", help="list every node")
    detail.add_argument(
        "--why", metavar="NODE", help="only the nodes with this name or operator"
    )
    detail.add_argument(
        "--against",
        metavar="EPS|FILE",
        help="what is otherwise than with these EPs, such as cuda,cpu, or than in this "
        ".json file that --json has printed before",
    )
    parser.add_argument(
        "--against-dim",
        metavar="NAME=SIZE",
        type=size,
        action="append",
        default=[],
        help="what is otherwise than with this size; may be repeated",
    )
    shown = parser.add_argument_group("a page")
    shown.add_argument(
        "--html",
        metavar="FILE",
        type=Path,
        help="write a page that shows the graph, and open it in a browser yourself",
    )
    timed = shown.add_mutually_exclusive_group()
    timed.add_argument(
        "--profile",
        action="store_true",
        help="with times, of some runs on numbers at random",
    )
    timed.add_argument(
        "--trace",
        metavar="FILE",
        help="with times, of a trace that a session of this plan has recorded",
    )
    parser.set_defaults(command=_explain)


def _explain(arguments: argparse.Namespace) -> None:
    if arguments.against_dim and (arguments.why is not None or arguments.nodes):
        raise UsageError("--against-dim is not for --why and --nodes; leave one out")
    timed = arguments.profile or arguments.trace is not None
    if timed and arguments.html is None:
        raise UsageError("--profile and --trace are for pages; say --html FILE, too")
    with TemporaryDirectory(prefix="onnxplug-explain-") as folder:
        trace = str(Path(folder, "trace")) if arguments.profile else ""
        session = open_session(arguments, dims=arguments.dim, trace=trace)
        check_ep_options(arguments, [session])
        path = _profiled(session) if trace else arguments.trace
        explanation = session.explain()
        if arguments.html is not None:
            _write_page(arguments, explanation, path)
    if arguments.against is not None or arguments.against_dim:
        _tell_difference(arguments, explanation)
        return
    nodes = explanation.nodes
    if arguments.why is not None:
        nodes = _fitting(explanation, arguments.why)
    if arguments.json:
        data = explanation.to_dict()
        kept = [index for index, n in enumerate(explanation.nodes) if n in nodes]
        data["nodes"] = [data["nodes"][index] for index in kept]
        print_json({"model": arguments.model, **data})
        return
    if arguments.why is not None:
        _print_reasons(nodes, explanation)
        return
    say(explanation)
    if arguments.nodes:
        say()
        _print_nodes(nodes)


def _profiled(session: InferenceSession) -> str:
    """Run *session* on numbers at random; the path of its trace."""
    from onnxplug_cli.feeds import RANDOM, FeedReader
    from onnxplug_cli.image import Scaling

    said = argparse.Namespace(dim=[], seed=0)
    scaling = Scaling.of(session.get_modelmeta().custom_metadata_map, None, None)
    feeds = FeedReader(session.get_inputs(), scaling, said).read([], RANDOM)
    inputs = {name: feed.array for name, feed in feeds.items()}
    with Progress("profiling"):
        for _ in range(_PROFILED_RUNS):
            session.run(None, inputs)
    return session.end_profiling()


def _write_page(
    arguments: argparse.Namespace, explanation: Explanation, trace: str | None
) -> None:
    with Progress("drawing"):
        text = explanation.to_html(Path(arguments.model).name, trace)
    arguments.html.write_text(text, encoding="utf-8")


def _tell_difference(arguments: argparse.Namespace, explanation: Explanation) -> None:
    """Print what is otherwise in *explanation* than in what it is compared with."""
    from onnxplug.errors import InvalidArgument

    try:
        found = explanation.difference(_before(arguments))
    except InvalidArgument as error:
        raise CommandFailed(f"{arguments.against}: {error}") from error
    if arguments.json:
        print_json({"model": arguments.model, **found.to_dict()})
    else:
        say(found)


def _before(arguments: argparse.Namespace) -> Explanation | dict[str, Any]:
    """The plan to compare with: of a file, or of other EPs or sizes."""
    against: str | None = arguments.against
    if against is not None and against.endswith(".json"):
        if arguments.against_dim:
            raise UsageError("--against-dim is not for plans of files; leave it out")
        try:
            found = json.loads(Path(against).read_text(encoding="utf-8"))
        except ValueError as error:
            raise CommandFailed(f"{against} is not JSON: {error}") from error
        return found if isinstance(found, dict) else {}
    sizes = {**dict(arguments.dim), **dict(arguments.against_dim)}
    providers = None if against is None else _names(against)
    with open_session(arguments, providers, dims=[*sizes.items()]) as session:
        return session.explain()


def _names(against: str) -> list[str]:
    try:
        return names(against)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--against: {error}") from error


def _fitting(explanation: Explanation, wanted: str) -> list[NodePlacement]:
    fitting = [
        node
        for node in explanation.nodes
        if wanted in (node.name, node.node) or wanted == node.op_type
    ]
    if fitting:
        return fitting
    names = [node.name or node.node for node in explanation.nodes]
    near = difflib.get_close_matches(wanted, names, n=1)
    hint = f"  Did you mean {near[0]!r}?" if near else ""
    raise UsageError(
        f"no node that runs has the name or operator {wanted!r}.{hint}\n"
        "Nodes may have been folded or removed before; --nodes lists those that run."
    )


def _print_nodes(nodes: list[NodePlacement]) -> None:
    rows = [
        (
            node.node,
            node.graph,
            name_to_write(node.ep),
            "" if node.partition < 0 else str(node.partition),
            _preferred(node),
        )
        for node in nodes
    ]
    header = ("NODE", "IN", "EP", "PARTITION", "PASSED OVER")
    # most models have one graph, and most nodes run on the EP asked first
    shown = [
        column
        for column, name in enumerate(header)
        if name not in ("IN", "PASSED OVER") or any(row[column] for row in rows)
    ]
    print_table(
        [header[column] for column in shown],
        [[row[column] for column in shown] for row in rows],
        right=("PARTITION",),
        wrap="PASSED OVER",
    )


def _print_reasons(nodes: list[NodePlacement], explanation: Explanation) -> None:
    crossing = {(each.graph, each.value): each for each in explanation.borders}
    for node in nodes:
        where = f" in {escape(node.graph)}" if node.graph else ""
        number = "" if node.partition < 0 else f", partition {node.partition}"
        tier = f", {node.tier} tier" if node.tier else ""
        say(f"{escape(node.node)}{where} runs on {node.ep}{number}{tier}")
        if node.note:
            say(f"  {escape(node.note)}")
        if node.pin:
            say(f"  decided by {escape(node.pin)}")
        for passed in node.passed_over:
            say(f"  not on {passed}")
        if not node.passed_over:
            say("  no other EP was asked")
        for name, kind in zip(node.outputs, node.types, strict=False):
            border = crossing.get((node.graph, name or ""))
            if border is not None:
                say(f"  makes {border} ({kind or 'of unknown type'})")


def _preferred(node: NodePlacement) -> list[str]:
    """The EPs that would have had the node, had they taken it, and why they did not."""
    from onnxplug.ep import RefusalCode

    return [
        f"{name_to_write(passed.ep)}: {passed.reason}"
        for passed in node.passed_over
        if passed.reason.code is not RefusalCode.TAKEN
    ]
