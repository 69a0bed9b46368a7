"""Counts the ONNX backend suite's cases through kernels for CUDA, on the processor.

    python tools/run_suite.py [--kernels FOLDER] [--texts FOLDER] [--networks]
                              [--stand-in] [--capability 9.0] [--jobs N] [--every N]
                              [--json FILE] [CASE …]

No GPU is needed, but g++: each kernel that the compiler renders for CUDA is run, lane
by lane, and looked at; compiled ones are kept in FOLDER for the next time.  --texts has
the kernels' texts written to a folder, for ``compile_kernels.py`` to compile for GPUs.
With --stand-in all of the EP runs, on the tests' stand-in for CuPy, which knows less
well what a kernel may touch; else its plans and kernels do, and nothing more.  Neither
rounds factors to TF32, for which the suite's tolerances are too narrow.
--capability says which GPU kernels are for: those of 7.5 multiply float16 by tensor
cores, those from 8.0 on bfloat16, too.

The nine whole networks of the suite, with a billion multiplications each, are left out
without --networks, or their names; they take minutes each, and with --networks a case
may take an hour.

It ends with 1 where the CPU EP passes a case that does not pass with the kernels before
it, or that these take wholly and do not pass.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from processor_ep import NAME, Factory, Plugin

import onnxplug
from onnxplug.plugins import registry
from onnxplug_testing.backend_suite import (
    SECONDS_PER_CASE,
    CountingBackend,
    Lineup,
    load_cases,
)
from onnxplug_testing.suite_command import main

NETWORKS: Final = frozenset(
    f"test_{name}"
    for name in (
        "bvlc_alexnet densenet121 inception_v1 inception_v2 resnet50 shufflenet "
        "squeezenet vgg19 zfnet512"
    ).split()
)

HOUR: Final = 3600.0

EXACT: Final = {"use_tf32": "0"}

REPOSITORY: Final = Path(__file__).parents[3]


def on_stand_in(
    folder: Path, violations: Path, words: Sequence[str], patience: float
) -> int:
    """Count with the EP on the stand-in, of whose rules none may be broken.

    Args:
        violations: a file for what is.
    """
    sys.path.insert(0, str(REPOSITORY))
    from plugins.cuda.tests.conftest import StandInFactory, watching_blocks
    from plugins.cuda.tests.standin import CuPy, Machine

    class Telling(Machine):
        """Tells other processes of it, too."""

        def violate(self, what: str) -> None:
            super().violate(what)
            with violations.open("a", encoding="utf-8") as file:
                file.write(f"{what}\n")

    machine = Telling()
    registry.remove(StandInFactory.name)  # it may be installed
    onnxplug.register_ep_library("stand-in", StandInFactory(CuPy(machine, folder)))
    with watching_blocks(machine):
        status = main(__doc__, Lineup(StandInFactory.name, EXACT, patience), words)
    if violations.exists():
        print(violations.read_text("utf-8"), file=sys.stderr)
        return 1
    return status


def run() -> int:
    """Register the EP, and count."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--kernels", type=Path)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--networks", action="store_true")
    parser.add_argument("--stand-in", action="store_true")
    parser.add_argument("--capability", default="9.0")
    given, rest = parser.parse_known_args()
    if not given.networks and not any(word.startswith("test_") for word in rest):
        rest += [name for name in load_cases(CountingBackend) if name not in NETWORKS]
    patience = HOUR if given.networks else SECONDS_PER_CASE
    if given.texts:
        given.texts.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.kernels or Path(temporary)
        if given.stand_in:
            return on_stand_in(folder, Path(temporary, "violations"), rest, patience)
        major, minor = map(int, given.capability.split("."))
        capability = major, minor
        plugin = Plugin(Factory(folder, given.texts, capability))
        onnxplug.register_ep_library("cuda-on-processor", plugin)
        return main(__doc__, Lineup(NAME, {}, patience), rest)


if __name__ == "__main__":
    sys.exit(run())
