"""What code can reach by the names of its module, beside its arguments."""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import importlib
import inspect
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

PACKAGE = "onnxplug_cpu.compiler"

PURE = {"collections", "functools", "itertools", "math", "numpy", "struct", "typing"}
"""Modules of which nothing depends on the process."""

TRUSTED = {*PURE, "builtins", "onnxplug", "operator"}
"""Whose functions are not followed."""

IMPURE = {"breakpoint", "eval", "exec", "globals", "hash", "id", "input", "object"}
IMPURE |= {"open", "print", "vars", "__import__"}
"""Builtins that depend on it, or may."""


class Reach:
    """Follows code from function to function, and the constants that it reads.

    Attributes:
        wrong: what depends on more than arguments and constants of the source.
        functions: how many were followed.
    """

    def __init__(self, package: str = PACKAGE) -> None:
        self.package = package
        self.wrong: list[str] = []
        self.functions = 0
        self._seen: set[Any] = set()

    def follow(self, function: Callable[..., Any]) -> None:
        """Look at a function and all that it calls."""
        function = inspect.unwrap(function)
        if not isinstance(function, FunctionType) or function in self._seen:
            return
        self._seen.add(function)
        self.functions += 1
        for cell in function.__closure__ or ():
            self._look(cell.cell_contents, f"around {function.__qualname__}")
        self._code(function.__code__, function.__globals__)

    def _code(self, code: CodeType, names: dict[str, Any]) -> None:
        where = f"{names['__name__']}.{code.co_qualname}"
        read = {
            instruction.argval
            for instruction in dis.get_instructions(code)
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
        }
        for name in code.co_names:
            if name in names:
                self._named(name, names, code, where)
            elif name in IMPURE & read and hasattr(builtins, name):
                self.wrong.append(f"{where} calls {name}")
            elif name.startswith(self.package):  # imported where it is used
                module = importlib.import_module(name)
                self._attributes(module, code, where)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._code(constant, names)

    def _attributes(self, module: ModuleType, code: CodeType, where: str) -> None:
        for name in code.co_names:
            if name in vars(module):
                self._named(name, vars(module), code, where)

    def _named(
        self, name: str, names: dict[str, Any], code: CodeType, where: str
    ) -> None:
        value = names[name]
        if isinstance(value, ModuleType):
            if value.__name__.startswith(self.package):
                self._attributes(value, code, where)
                return
        elif not isinstance(value, type | Callable):  # type: ignore[arg-type]
            self._constant(name, names, where)
        self._look(value, f"{where} reads {name}")

    def _look(self, value: Any, where: str) -> None:
        if isinstance(value, ModuleType):
            if value.__name__.split(".")[0] not in PURE:
                self.wrong.append(f"{where}, a module")
        elif isinstance(value, type):
            self._class(value, where)
        elif isinstance(value, dict):
            for each in (*value, *value.values()):
                self._look(each, where)
        elif isinstance(value, tuple | frozenset):
            for each in value:
                self._look(each, where)
        elif callable(value):
            module = getattr(value, "__module__", None) or "builtins"
            if module.startswith(self.package):
                self.follow(value)
            elif module.split(".")[0] not in {
                *PURE,
                "builtins",
                "operator",
                "onnxplug",
            }:
                self.wrong.append(f"{where}, of {module}")
        elif type(value).__module__.split(".")[0] not in (
            *("builtins", "numpy", "typing", "re"),
            self.package.split(".")[0],
        ) or isinstance(value, list | set | bytearray):
            self.wrong.append(f"{where}, a {type(value).__qualname__}")

    def _class(self, class_: type, where: str) -> None:
        if class_ in self._seen or not class_.__module__.startswith(self.package):
            return
        self._seen.add(class_)
        for base in class_.__mro__[1:]:
            self._class(base, where)
        for value in vars(class_).values():
            if isinstance(value, property):
                value = value.fget
            if isinstance(value, FunctionType | classmethod | staticmethod):
                self.follow(getattr(value, "__func__", value))

    def _constant(self, name: str, names: dict[str, Any], where: str) -> None:
        """A constant's definition may only name what may be reached, too."""
        if (names["__name__"], name) in self._seen:
            return
        self._seen.add((names["__name__"], name))
        for node in source_of(names["__name__"]).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    imported = name == (alias.asname or alias.name)
                    if imported and node.module.startswith(self.package):
                        module = importlib.import_module(node.module)
                        self._constant(alias.name, vars(module), where)
            elif (
                isinstance(node, ast.Assign | ast.AnnAssign)
                and node.value
                and name in names_in(node, ast.Store)
            ):
                code = compile(ast.Expression(node.value), name, "eval")
                self._code(code, names)


@functools.cache
def source_of(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(importlib.import_module(module)))


def names_in(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, context)
    }
