"""Finds the native plugin EPs that are installed as wheels made for ONNX Runtime.

Such a wheel advertises nothing.  Most are called ``onnxruntime-ep-…``, and have a
module with ``get_library_path()`` and ``get_ep_names()``; others say the name in a
constant, or nowhere, and their library is that of their files that exports what such
libraries do.  Names are read from the text of the module, of which nothing is run
before one of its EPs is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from onnxplug.plugins.hosted import (
    ORT_SYMBOL,
    HostedLibrary,
    has_host,
    host_library,
)
from onnxplug.plugins.library import Library
from onnxplug.plugins.metadata import FoundPlugin, InstalledDistribution

if TYPE_CHECKING:
    from pathlib import Path

_NAMES: Final = ("get_ep_names", "get_ep_name")
_PATH: Final = "get_library_path"
_CONSTANT: Final = "EP_NAME"

_UNSAID: Final = {"nxrt-ep-cpu": "cpu_ep"}
"""The EPs of wheels whose modules do not say it."""

_NOT_IMPORTED: Final = ("onnxruntime-ep-nv-tensorrt-rtx",)
"""Wheels, by how their names begin, whose modules import ONNX Runtime where it is, and
write links beside themselves; their libraries are found without that."""

_KIND: Final = re.compile(r"[-_]cu\d+$")
"""What the name of a wheel has, and that of its module has not: for which CUDA."""


class WheelPlugin(FoundPlugin):
    """An EP of a native library that a wheel has."""

    def __init__(self, name: str, wheel: InstalledDistribution, is_only: bool) -> None:
        """*is_only*: it is the wheel's only one."""
        super().__init__(name, _module(wheel), wheel)
        self._wheel = wheel
        # some libraries call their EP what they are registered as
        self._handle = name if is_only else self.distribution

    def library(self) -> Library:
        """The library, which is hosted when it is loaded."""
        hosted: list[HostedLibrary] = []

        def find() -> object:
            hosted.append(host_library(self._handle, _library(self._wheel)))
            return hosted[-1]

        def discard() -> None:
            for library in hosted:
                library.close()

        return Library(f"{self.module}.get_library_path()", find, discard)


def find_in_wheels(wheels: Iterable[InstalledDistribution]) -> Iterator[FoundPlugin]:
    """The EPs of *wheels*, which are such.

    None, if no distribution is installed that hosts native libraries.
    """
    if not has_host():
        return
    for wheel in wheels:
        file = wheel.locate_file(f"{_module(wheel)}/__init__.py")
        try:
            with open(file, encoding="utf-8") as source:
                names = ep_names(source.read(), _UNSAID.get(wheel.name))
        except (OSError, SyntaxError, ValueError) as error:
            import logging

            logging.getLogger("onnxplug.plugins").warning(
                "the EPs of %s cannot be told from %s, so it is left out: %s; register "
                "its library by hand",
                wheel.name,
                file,
                error,
            )
            continue
        yield from (WheelPlugin(name, wheel, len(names) == 1) for name in names)


def _module(wheel: InstalledDistribution) -> str:
    return _KIND.sub("", wheel.name).replace("-", "_")


def _library(wheel: InstalledDistribution) -> Path:
    """The library of *wheel*.

    Raises:
        LookupError: it has none, or several.
    """
    import importlib
    from pathlib import Path

    name = _module(wheel)
    init = Path(wheel.locate_file(f"{name}/__init__.py"))
    is_imported = not wheel.name.startswith(_NOT_IMPORTED)
    if is_imported and f"def {_PATH}(" in init.read_text("utf-8"):
        module: Any = importlib.import_module(name)
        return Path(module.get_library_path())
    # others may want ONNX Runtime when they are imported
    found = [path for path in sorted(init.parent.rglob("*")) if _is_ep(path)]
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise LookupError(
            f"one of the files of {wheel.name} is to export {ORT_SYMBOL}; found {names}"
        )
    return found[0]


def _is_ep(path: Path) -> bool:
    from onnxplug.plugins.native import NotALibrary, exported_symbols

    if path.suffix not in (".so", ".dylib", ".dll"):
        return False
    try:
        return ORT_SYMBOL in exported_symbols(path)
    except NotALibrary:
        return False


def ep_names(source: str, unsaid: str | None = None) -> list[str]:
    """The names that the module of such a wheel says its EPs have.

    Args:
        unsaid: the name, where the module does not say it.

    Raises:
        SyntaxError: *source* is no Python.
        ValueError: it does not say them in so many words.
    """
    import ast

    body = ast.parse(source).body
    texts: dict[str, str] = {}
    for statement in body:
        if isinstance(statement, ast.Assign) and isinstance(
            statement.value, ast.Constant
        ):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    texts[target.id] = str(statement.value.value)
    functions = {
        statement.name: statement
        for statement in body
        if isinstance(statement, ast.FunctionDef)
    }
    for name in _NAMES:
        if name not in functions:
            continue
        returned = functions[name].body[-1]
        value = returned.value if isinstance(returned, ast.Return) else None
        items = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
        found = [
            str(item.value)
            if isinstance(item, ast.Constant)
            else texts.get(item.id)
            if isinstance(item, ast.Name)
            else None
            for item in items
        ]
        names = [each for each in found if each]
        if names and len(names) == len(found):
            return names
    if unsaid or _CONSTANT in texts:
        return [unsaid or texts[_CONSTANT]]
    raise ValueError(f"no function {' or '.join(_NAMES)} returns names as they are")
