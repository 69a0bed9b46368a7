"""Findings quote the contract: each sentence is in the documentation, word by word."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import onnxplug.ep
from onnxplug_testing.conformance import GROUPS, Sentence, all_checks, groups
from onnxplug_testing.conformance.contract import INTERFACE

DOCS = Path(__file__).parents[4] / "docs"


def sentences() -> dict[str, Sentence]:
    all_checks()
    names = [f"groups.{each.name}" for each in pkgutil.iter_modules(groups.__path__)]
    assert {f"groups.{group}" for group in GROUPS} <= set(names)
    found = {}
    for name in [*names, "isolation", "sentences"]:
        module = importlib.import_module(f"onnxplug_testing.conformance.{name}")
        for key, value in vars(module).items():
            if isinstance(value, Sentence):
                found[f"{name}.{key}"] = value
    return found


SENTENCES = sentences()


def test_each_sentence_is_stated_once() -> None:
    # by identity: modules import sentences from each other
    stated = {id(each): each for each in SENTENCES.values()}.values()
    assert len({(each.of, each.says) for each in stated}) == len(stated)


def said_of(what: str) -> str:
    """The docstring of a class or method of the interface, or that of an attribute."""
    name, _, member = what.partition(".")
    kind = getattr(onnxplug.ep, name)
    if not member:
        return kind.__doc__ or ""
    function = vars(kind).get(member)
    if isinstance(function, property):
        function = function.fget
    if inspect.isfunction(function) and function.__doc__:
        return function.__doc__
    source = inspect.getsource(kind)
    found = re.search(rf'^    {member}\b.*?"""(.*?)"""', source, re.S | re.M)
    assert found, f"{what} has no docstring"
    return found.group(1)


def plain(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("key", SENTENCES)
def test_each_sentence_is_the_contract_s(key: str) -> None:
    sentence = SENTENCES[key]
    if sentence.page == INTERFACE:
        text = said_of(sentence.of)
    else:
        text = (DOCS / sentence.page).read_text("utf-8")
        assert f"# {sentence.of}\n" in text
    assert plain(sentence.says) in plain(text)


@pytest.mark.parametrize("key", SENTENCES)
def test_each_link_leads_to_a_heading(key: str) -> None:
    path, _, anchor = SENTENCES[key].link.partition("#")
    text = (DOCS.parent / path).read_text("utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    slugs = ["-".join(h.lower().replace(",", "").split()) for h in headings]
    assert anchor in slugs
