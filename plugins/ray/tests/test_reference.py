"""The page of the reference has all that is public, with its defaults."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import onnxplug_ray

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "ray.md"


@pytest.mark.parametrize("name", onnxplug_ray.__all__)
def test_a_public_name_is_on_the_page(name) -> None:
    assert f"`{name}" in PAGE.read_text("utf-8") or f"## {name}\n" in PAGE.read_text(
        "utf-8"
    )


def test_the_predictor_has_the_arguments_that_the_page_says() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in PAGE.read_text("utf-8").partition("\n| attribute")[0].splitlines()
        if line.startswith("| `")
    ]
    said = {
        argument.strip("` "): default.strip("`")
        for names, default, *_ in rows
        for argument in names.split(", ")
    }
    known = {
        name: "required"
        if parameter.default is parameter.empty
        else default_of(parameter)
        for name, parameter in inspect.signature(
            onnxplug_ray.Predictor
        ).parameters.items()
    }
    assert said == known


def default_of(parameter: inspect.Parameter) -> str:
    """As Python writes it."""
    value = parameter.default
    if isinstance(value, str):
        return f'"{value}"'
    return value.__name__ if inspect.isclass(value) else repr(value)


@pytest.mark.parametrize("name", ["share", "actor_options", "survey"])
def test_functions_have_the_signatures_that_the_page_says(name) -> None:
    parameters = []
    keyword = False
    for each in inspect.signature(getattr(onnxplug_ray, name)).parameters.values():
        if each.kind is each.KEYWORD_ONLY and not keyword:
            keyword = True
            parameters.append("*")
        shown = "" if each.default is each.empty else f"={default_of(each)}"
        parameters.append(f"{each.name}{shown}")
    assert f"`{name}({', '.join(parameters)})`" in PAGE.read_text("utf-8")
