"""The process in which ``onnxplug doctor --isolate`` checks one plugin.

``python -m onnxplug_cli.doctor.child ep EP OPTIONS [LIBRARY …]`` writes a line of JSON
before each step, and one when all is done, so that whoever reads them knows how far it
came; the EP's options are JSON, too.
``python -m onnxplug_cli.doctor.child domain DOMAIN DISTRIBUTION`` writes one line, and
``python -m onnxplug_cli.doctor.child library LIBRARY``, which registers it, none.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Final

from onnxplug.errors import PluginError
from onnxplug.plugins import registry
from onnxplug_cli.doctor.checkup import Checkup, examine
from onnxplug_cli.doctor.domains import DomainCheckup, examine_domain
from onnxplug_cli.library import register_libraries


def main(kind: str, *words: str) -> None:
    """Check a plugin; see above."""
    # whatever the plugin prints goes to stderr; the lines are for us alone
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as lines:
        os.dup2(2, 1)
        for checkup in _STEPS[kind](*words):
            print(json.dumps(checkup.to_json()), file=lines, flush=True)


def _ep(ep: str, options: str, *libraries: str) -> Iterator[Checkup]:
    register_libraries(list(libraries))
    return examine(registry.resolve(ep), registry, json.loads(options))


def _domain(domain: str, distribution: str) -> Iterator[DomainCheckup]:
    for supplier in registry.domains.suppliers(domain):
        if supplier.name == distribution:
            yield examine_domain(supplier)


def _library(target: str) -> Iterator[Checkup]:
    # whoever asked registers it, too, and is told then what is wrong with it
    with contextlib.suppress(PluginError):
        register_libraries([target])
    return iter(())


_STEPS: Final[dict[str, Callable[..., Iterator[Checkup | DomainCheckup]]]] = {
    "ep": _ep,
    "domain": _domain,
    "library": _library,
}


if __name__ == "__main__":
    main(*sys.argv[1:])
