"""Counts the ONNX backend suite's cases through an EP made for ONNX Runtime.

    python tools/run_suite.py EP [--library PATH] [--option NAME=VALUE] [--intel]
        [--trust] …

The other arguments are --jobs N, --every N, --json FILE and cases.  It ends with 1
where the CPU EP passes a case that does not pass with the EP before it, or that the EP
takes wholly and does not pass.
"""

from __future__ import annotations

import argparse
import sys

from library import add_arguments, named

from onnxplug_testing.backend_suite import Lineup
from onnxplug_testing.suite_command import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    add_arguments(parser)
    parser.add_argument("--trust", action="store_true", help="take it at its word")
    given, words = parser.parse_known_args()
    with named(given) as library:
        library.register()
        options = dict(library.options)
        if given.trust:
            options["onnxplug.trust_library"] = "1"
        sys.exit(main(__doc__, Lineup(library.ep, options), words))
