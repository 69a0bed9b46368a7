"""The process in which ``onnxplug doctor --isolate`` checks one plugin.

``python -m onnxplug.cli.doctor.child EP [LIBRARY …]`` writes a line of JSON before each
step, and one when all is done, so that whoever reads them knows how far it came.
"""

from __future__ import annotations

import json
import os
import sys

from onnxplug.cli.doctor.checkup import examine
from onnxplug.cli.library import register_libraries
from onnxplug.plugins import registry


def main(ep: str, *libraries: str) -> None:
    """Check the plugin of *ep*, which *libraries* may supply."""
    # whatever the plugin prints goes to stderr; the lines are for us alone
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as lines:
        os.dup2(2, 1)
        register_libraries(list(libraries))
        for checkup in examine(registry.resolve(ep), registry):
            print(json.dumps(checkup.to_json()), file=lines, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
