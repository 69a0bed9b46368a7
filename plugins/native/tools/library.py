"""Which library the tools speak of, on the hardware that it asks for."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnxplug
from onnxplug_testing.hardware import INTEL_CPU, presented


@dataclass(frozen=True)
class Library:
    """An EP and the library that has it.

    Attributes:
        ep: the EP's name.
        path: the library's file; ``None`` if a wheel has it that is found by itself.
        options: of the EP, besides those that its device suggests.
    """

    ep: str
    path: Path | None
    options: Mapping[str, str] = field(default_factory=dict)

    def register(self) -> None:
        """Have its EPs in this process."""
        if self.path is not None:
            # some libraries call their EP what they are registered as
            onnxplug.register_ep_library(self.ep, self.path)

    def device(self) -> onnxplug.OrtEpDevice:
        """A device that the EP drives.

        Raises:
            SystemExit: there is none.
        """
        for device in onnxplug.get_ep_devices():
            if device.ep_name == self.ep:
                return device
        raise SystemExit(f"{self.ep} drives nothing here; is --library right?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those by which users name a library."""
    parser.add_argument("ep", help="the EP's name, as the library gives it")
    parser.add_argument(
        "--library", type=Path, help="its file, unless onnxplug finds its wheel itself"
    )
    parser.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an option of the EP; may be repeated",
    )
    parser.add_argument(
        "--intel", action="store_true", help="say that the processor is one of Intel's"
    )


@contextlib.contextmanager
def named(arguments: argparse.Namespace) -> Iterator[Library]:
    """The library that *arguments* name, and the hardware while it is used."""
    with presented(INTEL_CPU) if arguments.intel else contextlib.nullcontext():
        pairs = [each.partition("=") for each in arguments.option]
        options = {name: value for name, _, value in pairs}
        yield Library(arguments.ep, arguments.library, options)
