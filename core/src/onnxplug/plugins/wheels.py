"""Finds the native plugin EPs that are installed as wheels made for ONNX Runtime.

Such a wheel is called ``onnxruntime-ep-…``, advertises nothing, and has a module with
``get_library_path()`` and ``get_ep_names()``.  The names are read from the text of the
module, of which nothing is run before one of its EPs is used.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

from onnxplug.plugins.hosted import HostedLibrary, has_host, host_library
from onnxplug.plugins.library import Library
from onnxplug.plugins.metadata import FoundPlugin, InstalledDistribution

_NAMES: Final = ("get_ep_names", "get_ep_name")


class WheelPlugin(FoundPlugin):
    """An EP of a native library that a wheel has."""

    def library(self) -> Library:
        """The library, which is hosted when it is loaded."""
        hosted: list[HostedLibrary] = []

        def find() -> object:
            from pathlib import Path

            module: Any = importlib.import_module(self.module)
            path = Path(module.get_library_path())
            hosted.append(host_library(self.distribution, path))
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
        module = wheel.name.replace("-", "_")
        file = wheel.locate_file(f"{module}/__init__.py")
        try:
            with open(file, encoding="utf-8") as source:
                names = ep_names(source.read())
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
        yield from (WheelPlugin(name, module, wheel) for name in names)


def ep_names(source: str) -> list[str]:
    """The names that the module of such a wheel says its EPs have.

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
    raise ValueError(f"no function {' or '.join(_NAMES)} returns names as they are")
