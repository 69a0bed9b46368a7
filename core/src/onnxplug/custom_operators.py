"""Operators that a program gives to its sessions, rather than a distribution to all."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from onnxplug.ep import SPI_VERSION, Domain, Operator
from onnxplug.errors import NoSuchFile, PluginLoadError
from onnxplug.guard import FAILURES
from onnxplug.interruption import raise_interruption
from onnxplug.plugins.declared import check_domain
from onnxplug.plugins.library import Library
from onnxplug.plugins.versions import check_spi_version

_NATIVE: Final = (".so", ".dll", ".dylib", ".pyd")

_MAGIC: Final = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""What files of machine code begin with: on Linux, Windows and macOS."""


def read_library(library: Any) -> Sequence[Domain]:
    """The domains that a program's library of operators supplies.

    Args:
        library: the path of a Python file, or the name of a module, with the hook
            ``onnxplug_domains`` or a function ``onnxplug_domains(host)``; a module; a
            :class:`Domain`; or a function: an ``onnx.FunctionProto``, or one of
            ``onnxscript``.

    Raises:
        NoSuchFile: there is no file at the path.
        PluginLoadError: it is native, raises, or supplies no domain.
    """
    if hasattr(library, "to_function_proto"):  # one of onnxscript
        library = library.to_function_proto()
    if type(library).__name__ == "FunctionProto":
        operator = Operator(op_type=library.name, function=library)
        library = Domain(
            name=library.domain, spi_version=SPI_VERSION, operators=[operator]
        )
    target = library
    if isinstance(library, str | os.PathLike):
        target = _module(os.fsdecode(library))
    try:
        domains = [*Library(_named(library), lambda: target).domains().values()]
        for domain in domains:
            check_spi_version(domain)
            check_domain(domain)
    except FAILURES as error:
        raise_interruption(error)
        raise PluginLoadError(
            f"the operators of {_named(library)} cannot be used: {error}"
        ) from error
    return domains


def _named(library: Any) -> str:
    return str(getattr(library, "__name__", getattr(library, "name", library)))


def _module(path: str) -> Any:
    """The module in a Python file, or of a name."""
    is_file = os.path.isfile(path)
    if path.lower().endswith(_NATIVE) or (is_file and _is_native(path)):
        raise PluginLoadError(
            f"{path!r} is a native library of custom operators, which is machine code "
            "for the C interface of ONNX Runtime and cannot be run by onnxplug; write "
            "the operators in Python, as functions or kernels, and pass that file, or "
            "write an EP that takes them"
        )
    if not is_file and (os.path.dirname(path) or path.endswith(".py")):
        raise NoSuchFile(f"there is no library of custom operators at {path!r}")
    try:
        return _from_file(path) if is_file else importlib.import_module(path)
    except FAILURES as error:
        raise_interruption(error)
        raise PluginLoadError(
            f"the library of custom operators {path!r} cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error


def _is_native(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4).startswith(_MAGIC)


def _from_file(path: str) -> Any:
    whole = os.path.abspath(path)
    name = f"onnxplug_operators_{abs(hash(whole)):x}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, whole)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path!r} is no Python file")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
