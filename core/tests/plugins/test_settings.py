"""Each setting, what outranks what, and values that are not understood."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onnxplug.errors import (
    OptionError,
    PluginBlocked,
    PluginConflict,
    PluginIncompatible,
)
from onnxplug.plugins import PluginRegistry, PluginState, settings
from onnxplug.plugins.settings import read_settings
from onnxplug_testing import ToyFactory

ROOT = Path(__file__).parents[3]
ONE, TWO = "XOneExecutionProvider", "XTwoExecutionProvider"
TOY = ToyFactory.name


def test_nothing_set_means_everything_is_loaded_and_nothing_raises() -> None:
    read = read_settings({})
    assert (read.autoload, read.listed, read.strict) == (True, None, False)
    assert read.blocked == frozenset()


@pytest.mark.parametrize("spelling", ["0", "false", "NO", " off "])
def test_switches_may_be_spelled_in_words(spelling: str) -> None:
    assert not read_settings({"ONNXPLUG_AUTOLOAD": spelling}).autoload


@pytest.mark.parametrize("spelling", ["1", "True", "yes", "on"])
def test_switches_are_on_in_as_many_words(spelling: str) -> None:
    assert read_settings({"ONNXPLUG_STRICT": spelling}).strict


def test_lists_are_of_short_names_and_pins() -> None:
    read = read_settings(
        {
            "ONNXPLUG_PLUGINS": "cpu, CUDAExecutionProvider@Onnxplug_CUDA,cpu",
            "ONNXPLUG_BLOCK": "TensorRT,Acme-OV",
        }
    )
    assert read.listed == {"cpu": "", "cuda": "onnxplug-cuda"}
    assert read.blocked == {"tensorrt", "acme-ov"}


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("ONNXPLUG_AUTOLOAD", "maybe", "expected one of 1, true"),
        ("ONNXPLUG_AUTOLOAD", "", "expected one of 1, true"),
        ("ONNXPLUG_STRICT", "2", "expected one of 1, true"),
        ("ONNXPLUG_PLUGINS", "", "is empty"),
        ("ONNXPLUG_PLUGINS", "cpu,,cuda", "empty item"),
        ("ONNXPLUG_PLUGINS", "cpu,", "empty item"),
        ("ONNXPLUG_PLUGINS", "cuda@", "expected name, or name@distribution"),
        ("ONNXPLUG_PLUGINS", "@onnxplug-cuda", "expected name, or name@distribution"),
        ("ONNXPLUG_PLUGINS", "a@b@c", "expected name, or name@distribution"),
        ("ONNXPLUG_PLUGINS", "cuda@one,cuda@two", "lists 'cuda' twice"),
        ("ONNXPLUG_PLUGINS", "cuda,cuda@two", "lists 'cuda' twice"),
        ("ONNXPLUG_BLOCK", " ", "is empty"),
        ("ONNXPLUG_BLOCK", ",cuda", "empty item"),
        ("ONNXPLUG_BLOCK", "cuda@acme", "only ONNXPLUG_PLUGINS takes"),
    ],
)
def test_a_value_that_is_not_understood_is_an_error(
    variable: str, value: str, told: str
) -> None:
    registry = PluginRegistry({variable: value})
    for _ in range(2):
        with pytest.raises(OptionError, match=told) as raised:
            registry.records()
        assert f"{variable} is {value!r}" in str(raised.value)


def test_settings_are_read_once_and_again_when_asked_to(site, states) -> None:
    environment = {"ONNXPLUG_BLOCK": "xone"}
    site.install([ONE, TWO], distribution="x-both")
    registry = PluginRegistry(environment)
    assert states(registry) == {ONE: "blocked", TWO: "found"}
    environment["ONNXPLUG_BLOCK"] = "xtwo"
    assert states(registry) == {ONE: "blocked", TWO: "found"}
    registry.refresh()
    assert states(registry) == {ONE: "found", TWO: "blocked"}


def test_without_autoload_only_what_is_named_is_loaded(site, states) -> None:
    site.install(ONE)
    site.install(TWO)
    registry = PluginRegistry({"ONNXPLUG_AUTOLOAD": "0"})
    assert registry.automatic_factories() == []
    assert states(registry) == {ONE: "found", TWO: "found"}
    factory = registry.factory("xone")
    toy = registry.add(ToyFactory()).factory
    assert registry.automatic_factories() == [toy, factory]
    assert states(registry) == {ONE: "ready", TWO: "found"}


def test_only_listed_plugins_are_used(site, states) -> None:
    site.install(ONE, distribution="onnxplug-xalias")
    site.install(TWO, "raise SystemExit('imported')")
    for listed in ("xone", ONE, "xalias"):
        registry = PluginRegistry({"ONNXPLUG_PLUGINS": listed})
        assert states(registry) == {ONE: "found", TWO: "blocked"}
        assert [each.name for each in registry.automatic_factories()] == [ONE]
        told = rf"ONNXPLUG_PLUGINS lists .*\({listed.lower()[:4]}.*add 'xtwo' there"
        with pytest.raises(PluginBlocked, match=told) as raised:
            registry.factory(TWO)
        assert raised.value.plugin == TWO
        with pytest.raises(PluginBlocked):
            registry.register_ep_library("two", TWO)


def test_a_list_does_not_keep_out_what_the_program_brings(site) -> None:
    registry = PluginRegistry({"ONNXPLUG_PLUGINS": "cpu"})
    assert registry.add(ToyFactory()).state is PluginState.READY
    registry.remove(TOY)
    assert registry.register_ep_library("toy", ToyFactory).eps == (TOY,)


def test_a_pin_resolves_a_conflict(site) -> None:
    site.install(ONE, distribution="First.One")
    site.install(ONE, distribution="second-one")
    assert PluginRegistry({}).resolve(ONE).state is PluginState.CONFLICT
    listed = PluginRegistry({"ONNXPLUG_PLUGINS": "xone"})
    with pytest.raises(PluginConflict):
        listed.factory(ONE)
    pinned = PluginRegistry({"ONNXPLUG_PLUGINS": "xone@first-one"})
    assert pinned.factory(ONE).name == ONE
    assert pinned.resolve(ONE).distribution == "First.One"


def test_a_pin_to_another_supplier_blocks(site) -> None:
    site.install(ONE, "raise SystemExit('imported')", distribution="squatter")
    registry = PluginRegistry({"ONNXPLUG_PLUGINS": "xone@onnxplug-one"})
    with pytest.raises(PluginBlocked, match="from onnxplug-one, and squatter supplies"):
        registry.factory(ONE)


@pytest.mark.parametrize(
    "ban", ["xone", ONE, "xalias", "onnxplug-xalias", "onnxplug_xalias"]
)
def test_a_ban_names_an_ep_or_a_distribution(site, ban: str) -> None:
    code = "raise SystemExit('imported')"
    site.install(ONE, code, distribution="onnxplug-xalias")
    registry = PluginRegistry({"ONNXPLUG_BLOCK": ban})
    assert registry.resolve(ONE).state is PluginState.BLOCKED
    with pytest.raises(PluginBlocked, match="ONNXPLUG_BLOCK has it"):
        registry.factory(ONE)
    assert ONE not in [factory.name for factory in registry.automatic_factories()]


def test_a_ban_outranks_all_else(site) -> None:
    site.install(ONE)
    environment = {"ONNXPLUG_BLOCK": "xone,toy", "ONNXPLUG_PLUGINS": "xone,toy"}
    registry = PluginRegistry(environment)
    calls = [
        lambda: registry.factory(ONE),
        lambda: registry.register_ep_library("mine", ONE),
        lambda: registry.add(ToyFactory()),
        lambda: registry.register_ep_library("mine", ToyFactory()),
        lambda: registry.register_ep_library("toy", site.folder.parent / "never.py"),
    ]
    (site.folder.parent / "never.py").write_text("raise SystemExit('imported')")
    for call in calls:
        with pytest.raises(PluginBlocked, match="ONNXPLUG_BLOCK"):
            call()
    assert registry.libraries() == []


def test_strict_raises_all_that_is_wrong_with_what_nobody_named(site) -> None:
    site.install("XBroken", "raise ValueError('no luck')")
    site.install("XFuture", site.code("XFuture", version=(9, 0)))
    site.install("XTwice", distribution="x-first")
    site.install("XTwice", distribution="x-second")
    site.install("XBanned", "raise SystemExit('imported')")
    site.install("XGood")
    environment = {"ONNXPLUG_BLOCK": "xbanned"}
    names = [f.name for f in PluginRegistry(environment).automatic_factories()]
    assert "XGood" in names

    strict = PluginRegistry(environment | {"ONNXPLUG_STRICT": "1"})
    for _ in range(2):
        with pytest.raises(ExceptionGroup, match="ONNXPLUG_STRICT is set") as raised:
            strict.automatic_factories()
        about = {error.plugin: type(error) for error in raised.value.exceptions}
        assert list(about) == ["XBroken", "XFuture", "XTwice"]
        assert about["XFuture"] is PluginIncompatible
        assert about["XTwice"] is PluginConflict
    assert strict.factory("xgood").name == "XGood"


def test_strict_and_no_autoload_go_together(site) -> None:
    site.install("XBroken", "raise ValueError('no luck')")
    registry = PluginRegistry({"ONNXPLUG_STRICT": "1", "ONNXPLUG_AUTOLOAD": "0"})
    assert registry.automatic_factories() == []


def test_every_variable_is_documented() -> None:
    source = Path(settings.__file__).read_text("utf-8")
    page = (ROOT / "docs/reference/environment.md").read_text("utf-8")
    named = set(re.findall(r"\"(ONNXPLUG_[A-Z_]+)\"", source))
    assert len(named) == 5
    assert named <= set(re.findall(r"^\| `([A-Z_]+)", page, re.MULTILINE))
