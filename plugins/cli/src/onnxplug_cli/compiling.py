"""``onnxplug compile``: compiles a model ahead, for sessions to start sooner."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, Final

from onnxplug_cli.opening import add_session_arguments, session_options
from onnxplug_cli.progress import Progress
from onnxplug_cli.text import data_size, plural, print_json, say

_EPILOG: Final = """\
examples:
  onnxplug compile model.onnx --ep openvino
  onnxplug compile model.onnx --ep openvino --output compiled.onnx --embed
"""


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "compile",
        parents=[common],
        help="compile a model ahead, for sessions to start sooner",
        description="Write a model in which EPContext nodes stand for what EPs have "
        "compiled.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_session_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where to write it (default: MODEL_ctx.onnx, beside the model)",
    )
    parser.add_argument(
        "--embed",
        action="store_true",
        help="write what EPs compiled into the model, not into files beside it",
    )
    parser.set_defaults(command=compile_model)


def compile_model(arguments: argparse.Namespace) -> None:
    """Compile, and print what came of it.

    Raises:
        Fail: no EP serialised what it compiled.
        OnnxplugError: the model or an EP cannot be used.
    """
    from onnxplug import GraphOptimizationLevel, ModelCompiler, OrtCompileApiFlags
    from onnxplug.session.compiled_model import default_path

    options = session_options(arguments)
    if arguments.policy is not None:
        options.set_provider_selection_policy(arguments.policy)
    compiler = ModelCompiler(
        options,
        arguments.model,
        arguments.embed,
        flags=OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED,
        graph_optimization_level=GraphOptimizationLevel.ORT_ENABLE_ALL,
        providers=arguments.ep,
    )
    path = arguments.output or default_path(arguments.model)
    with Progress(f"compiling {Path(arguments.model).name} …"):
        compiler.compile_to_file(path)
    explanation = compiler.explanation
    assert explanation is not None, "it was compiled"
    left = {each.number: each for each in explanation.not_written}
    written = [each for each in explanation.partitions if each.number not in left]
    if arguments.json:
        print_json(
            {
                "model": path,
                "compiled": [{"ep": p.ep, "nodes": p.nodes} for p in written],
                "left": [
                    {
                        "ep": each.ep,
                        "nodes": explanation.partitions[each.number].nodes,
                        "reason": each.reason.detail,
                    }
                    for each in left.values()
                ],
            }
        )
        return
    say(f"wrote {path} ({data_size(os.path.getsize(path))})")
    for part in written:
        say(f"  compiled by {part.ep}: {plural(part.nodes, 'node')}")
    for each in left.values():
        count = plural(explanation.partitions[each.number].nodes, "node")
        say(f"  left as they are: {count} of {each.ep} ({each.reason.detail})")
