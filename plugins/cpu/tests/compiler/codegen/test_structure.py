"""Generators are read level by level: loops are methods, words are attributes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import onnxplug_cpu.compiler
from onnxplug_cpu.compiler.codegen.emit import PTR, Module
from onnxplug_cpu.compiler.codegen.kernel import (
    Float,
    FunctionArguments,
    Integer,
    KernelWords,
    Pointer,
)

PACKAGE = Path(onnxplug_cpu.compiler.__file__).parent
MOST, MOST_INNER = 80, 25
"""Lines of a function, its docstring not counted, and of one within another."""


def functions(
    node: ast.AST, *, inner: bool = False
) -> Iterator[tuple[ast.FunctionDef, bool]]:
    """All functions, and whether each is within another."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield child, inner
            yield from functions(child, inner=True)
        else:
            yield from functions(child, inner=inner)


def lines(function: ast.FunctionDef) -> int:
    assert function.end_lineno is not None
    count = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        assert docstring.end_lineno is not None
        count -= docstring.end_lineno - docstring.lineno + 1
    return count


def sources(*packages: str) -> list[Path]:
    return sorted(path for name in packages for path in (PACKAGE / name).rglob("*.py"))


@pytest.mark.parametrize(
    "path",
    sources("codegen", "kernels"),
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_functions_are_short(path: Path) -> None:
    for function, inner in functions(ast.parse(path.read_text(encoding="utf-8"))):
        assert lines(function) <= (MOST_INNER if inner else MOST), function.name


class Few(KernelWords):
    first: Pointer
    second: Integer


class More(Few):
    third: Float


class Call(FunctionArguments):
    place: Pointer
    count_: Integer


def test_words_are_in_order() -> None:
    assert More.names == ("first", "second", "third")


def test_a_word_is_loaded_where_it_is_read() -> None:
    module = Module()
    words = More(module, "kernel", ("fourth",))
    assert words.third.text != words.third.text
    assert words.integer("fourth").text
    words.function.finish()
    text = module.text("")
    assert text.count("load float") == 2
    assert "i64 3" in text


def test_a_word_that_is_kept_is_loaded_once() -> None:
    words = More(Module(), "kernel")
    words.keep(["first"])
    assert words.first is words.first
    assert words.first.type == PTR


def test_arguments_have_names_and_types() -> None:
    parameters = Call.parameters()
    assert [name for name, _ in parameters] == ["place", "count"]
    function = Module().function("called", parameters)
    assert Call(*function.parameters).count_.text == "%count"
