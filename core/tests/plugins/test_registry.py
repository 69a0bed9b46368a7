"""The life of plugins that are found: each state, how it is reached, what it tells."""

from __future__ import annotations

import sys

import pytest

from onnxplug.errors import (
    PluginConflict,
    PluginError,
    PluginIncompatible,
    PluginLoadError,
    PluginNotFound,
)
from onnxplug.plugins import PluginRegistry, PluginState

GOOD = "XGoodExecutionProvider"
BAD = "XBadExecutionProvider"

BROKEN = {
    "missing import": ("import no_such_module", "ModuleNotFoundError: No module named"),
    "exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "syntax": ("def", "SyntaxError"),
    "no hooks": ("x = 1", "supplies no EP"),
    "misspelt hook": (
        "from onnxplug import ep\n@ep.hookimpl\ndef onnxplug_ep_factorys(): 0",
        "onnxplug_ep_factorys",
    ),
    "hook asks for more": (
        "from onnxplug import ep\n@ep.hookimpl\ndef onnxplug_ep_factories(guest): 0",
        "guest",
    ),
    "hook raises": (
        "from onnxplug import ep\n@ep.hookimpl\ndef onnxplug_ep_factories(host): 1 / 0",
        "ZeroDivisionError",
    ),
    "no factories": (
        "from onnxplug import ep\n@ep.hookimpl\ndef onnxplug_ep_factories(): return []",
        "no EP",
    ),
    "something else": (
        "from onnxplug import ep\n@ep.hookimpl\n"
        "def onnxplug_ep_factories(): return [3]",
        "expected instances of onnxplug.ep.EpFactory",
    ),
}


def test_listing_reads_metadata_only(site, registry) -> None:
    site.install(GOOD, "raise SystemExit('imported')")
    record = registry.resolve(GOOD)
    assert record.state is PluginState.FOUND
    assert record.distribution == "onnxplug-xgoodexecutionprovider"
    assert record.version == "1.2"
    assert record.reason == ""


def test_a_plugin_is_loaded_when_its_factory_is_asked_for(site, registry) -> None:
    site.install(GOOD)
    factory = registry.factory(GOOD)
    assert factory.name == GOOD
    assert registry.factory("xgood") is factory
    assert registry.factory("xgoodexecutionprovider") is factory
    assert registry.resolve(GOOD).state is PluginState.READY


def test_a_plugin_can_tell_that_it_is_loading(site, registry) -> None:
    code = (
        "import registry_of_the_test as r; state = str(r.records_of_the_test().state)"
    )
    module = site.install(GOOD, f"{code}\n{site.code(GOOD)}")
    registry.records_of_the_test = lambda: registry.resolve(GOOD)
    sys.modules["registry_of_the_test"] = registry
    try:
        registry.factory(GOOD)
    finally:
        del sys.modules["registry_of_the_test"]
    assert sys.modules[module].state == "loading"


def test_the_suffix_of_the_distribution_is_a_name_too(site, registry) -> None:
    site.install("XDmlExecutionProvider", distribution="onnxplug-xdirectml")
    assert registry.factory("XDirectML").name == "XDmlExecutionProvider"


def test_the_suffix_of_a_foreign_distribution_is_no_name(site, registry) -> None:
    site.install("XDmlExecutionProvider", distribution="xdirectml")
    with pytest.raises(PluginNotFound):
        registry.factory("xdirectml")


def test_an_ep_of_the_name_goes_before_others_of_the_distribution(
    site, registry
) -> None:
    eps = ["XVinoExecutionProvider", "XVinoAutoExecutionProvider"]
    site.install(eps, distribution="onnxplug-xvino")
    assert registry.resolve("xvino").name == eps[0]


def test_a_name_that_fits_several_is_an_error(site, registry) -> None:
    eps = ["XOneExecutionProvider", "XTwoExecutionProvider"]
    site.install(eps, distribution="onnxplug-xboth")
    with pytest.raises(PluginError, match=r"fits several EPs: XOne.*, XTwo") as raised:
        registry.resolve("xboth")
    assert raised.value.plugin == "xboth"


def test_each_broken_plugin_fails_alone_and_tells_why(site, registry, states) -> None:
    for number, (code, _) in enumerate(BROKEN.values()):
        site.install(f"XBad{number}ExecutionProvider", code)
    other = "from onnxplug import ep\n" + site.code("XOtherExecutionProvider")
    site.install("XMisnamedExecutionProvider", other)
    site.install(GOOD)

    assert GOOD in [factory.name for factory in registry.automatic_factories()]
    for number, (_, told) in enumerate(BROKEN.values()):
        name = f"XBad{number}ExecutionProvider"
        for _ in range(2):  # the second time it is told again, not tried again
            with pytest.raises(PluginLoadError) as raised:
                registry.factory(name)
            assert told in str(raised.value)
            assert raised.value.plugin == name
            assert raised.value.__cause__ is registry.resolve(name).error
            assert f"ONNXPLUG_BLOCK=xbad{number}" in str(raised.value)
    with pytest.raises(PluginLoadError, match=r"'XOther.*not 'XMisn"):
        registry.factory("xmisnamed")
    found = dict(states(registry))
    assert found.pop(GOOD) == "ready"
    assert set(found.values()) == {"failed"}


def test_metadata_that_cannot_be_read_spoils_no_other(
    site, registry, states, caplog
) -> None:
    site.install("XNone", distribution="x-none", metadata="")
    lone = "[onnxplug.execution_providers]\nno value\n"
    site.install("XLone", distribution="x-lone", entry_points=lone)
    site.install("XOther", distribution="x-other", entry_points="[group]\nno value\n")
    site.install(GOOD)
    assert states(registry) == {GOOD: "found", "XNone": "found"}
    assert registry.factory(GOOD).name == GOOD
    (told,) = caplog.messages
    assert "x_lone-1.2.dist-info cannot be read, so it is left out" in told
    assert "'no value' is no entry point" in told


def test_a_distribution_may_come_without_metadata(site, registry) -> None:
    site.install(GOOD, distribution="x-none", metadata="")
    record = registry.resolve(GOOD)
    assert (record.distribution, record.version) == ("an unnamed distribution", "")
    assert registry.factory(GOOD).name == GOOD


def test_metadata_that_is_no_text_is_none(site, registry) -> None:
    site.install(GOOD, distribution="x-none", metadata="")
    (site.folder / "x_none-1.2.dist-info" / "METADATA").write_bytes(b"Name: \xff\n")
    assert registry.resolve(GOOD).distribution == "an unnamed distribution"


def test_two_eps_of_one_name_in_a_module_are_a_failure(site, registry) -> None:
    site.install(GOOD, site.code(GOOD, GOOD))
    with pytest.raises(PluginLoadError, match=f"two EPs named '{GOOD}'"):
        registry.factory(GOOD)


def test_several_eps_of_a_module_are_made_at_once(site, registry, states) -> None:
    eps = [f"X{word}ExecutionProvider" for word in ("One", "Two", "Three")]
    module = site.install([*eps, "XMissing"], site.code(*eps), distribution="x-many")
    first = registry.factory(eps[1])
    assert states(registry) == {**dict.fromkeys(eps, "ready"), "XMissing": "failed"}
    assert [registry.factory(ep).name for ep in eps] == eps
    assert registry.factory(eps[1]) is first
    (host,) = sys.modules[module].made
    assert host.logger.name == f"onnxplug.plugin.{module}"
    assert host.version


def test_one_failure_is_that_of_all_eps_of_the_module(site, registry, states) -> None:
    code = "import builtins\nbuiltins.x_imports += 1\nraise ImportError('half')"
    import builtins

    builtins.x_imports = 0
    try:
        site.install(["XOne", "XTwo"], code, distribution="x-many")
        for name in ("XOne", "XTwo"):
            with pytest.raises(PluginLoadError, match=f"plugin {name}.*half"):
                registry.factory(name)
        assert builtins.x_imports == 1
    finally:
        del builtins.x_imports
    assert states(registry) == {"XOne": "failed", "XTwo": "failed"}


@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        ((1, 99), "upgrade onnxplug"),
        ((2, 0), "upgrade onnxplug"),
        ((0, 8), "upgrade the plugin"),  # which there never was
    ],
)
def test_a_plugin_for_another_spi_is_incompatible(
    site, registry, version: tuple[int, int], remedy: str
) -> None:
    site.install(GOOD, site.code(GOOD, version=version))
    with pytest.raises(PluginIncompatible, match=remedy):
        registry.factory(GOOD)
    assert registry.resolve(GOOD).state is PluginState.INCOMPATIBLE


def test_a_plugin_for_another_onnxplug_is_not_imported(site, registry) -> None:
    requires = ["numpy>=2", "onnxplug (>=0.1,<0.99)", "onnxplug>=9000"]
    site.install(GOOD, "raise SystemExit('imported')", requires=requires)
    with pytest.raises(PluginIncompatible, match="needs 'onnxplug>=9000'") as raised:
        registry.factory(GOOD)
    assert "this is onnxplug 0." in str(raised.value)
    assert registry.resolve(GOOD).state is PluginState.INCOMPATIBLE


def test_a_spi_version_that_was_forgotten_is_a_failure(site, registry) -> None:
    code = site.code(GOOD, extra="del Factory.spi_version")
    site.install(GOOD, code)
    with pytest.raises(PluginLoadError, match="spi_version"):
        registry.factory(GOOD)


def test_two_suppliers_of_one_name_are_a_conflict(site, registry) -> None:
    site.install(GOOD, distribution="second-twice")
    site.install(GOOD, distribution="first-twice")
    with pytest.raises(PluginConflict, match="first-twice and second-twice") as raised:
        registry.factory(GOOD)
    assert "ONNXPLUG_PLUGINS, such as xgood@first-twice" in str(raised.value)
    assert registry.resolve(GOOD).state is PluginState.CONFLICT
    assert registry.resolve(GOOD).version == ""


def test_an_unknown_name_brings_the_nearest_and_the_installed(site, registry) -> None:
    site.install("CudaLikeExecutionProvider", "")
    with pytest.raises(PluginNotFound, match=r"Did you mean 'cudalike'\?") as raised:
        registry.factory("cudalik")
    assert "CudaLikeExecutionProvider" in str(raised.value)
    assert isinstance(raised.value, LookupError)


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        ("factory('xbad')", "asked for itself"),
        ("factory('xgood')", f"asked for plugin {GOOD} while"),
        ("automatic_factories()", "asked for all EPs while"),
        ("register_ep_library('mine', 'xgood')", "asked for library 'mine'"),
    ],
)
def test_a_plugin_that_asks_for_eps_while_it_is_imported_is_stopped(
    site, registry, ask: str, told: str
) -> None:
    site.install(BAD, f"import registry_of_the_test as r\nr.{ask}")
    site.install(GOOD)
    sys.modules["registry_of_the_test"] = registry
    try:
        with pytest.raises(PluginLoadError, match=told):
            registry.factory(BAD)
    finally:
        del sys.modules["registry_of_the_test"]
    assert registry.factory(GOOD).name == GOOD  # the guard is gone again


def test_a_plugin_may_ask_for_an_ep_that_is_ready(site, registry) -> None:
    site.install(GOOD)
    ask = "import registry_of_the_test as r\nr.factory('xgood')\n"
    site.install(BAD, ask + site.code(BAD))
    registry.factory(GOOD)
    sys.modules["registry_of_the_test"] = registry
    try:
        assert registry.factory(BAD).name == BAD
    finally:
        del sys.modules["registry_of_the_test"]


def test_an_interrupt_is_the_users_and_the_plugin_may_be_tried_again(
    site, registry
) -> None:
    code = "import sys\nif not hasattr(sys, 'x_again'): raise KeyboardInterrupt\n"
    site.install(GOOD, code + site.code(GOOD))
    with pytest.raises(KeyboardInterrupt):
        registry.factory(GOOD)
    assert registry.resolve(GOOD).state is PluginState.FOUND
    sys.x_again = True
    try:
        assert registry.factory(GOOD).name == GOOD
    finally:
        del sys.x_again


def test_what_is_installed_later_is_found_when_asked_to_look(site, registry) -> None:
    site.install(GOOD)
    factory = registry.factory(GOOD)
    site.install(BAD)
    with pytest.raises(PluginNotFound):
        registry.resolve(BAD)
    registry.refresh()
    assert registry.resolve(BAD).state is PluginState.FOUND
    assert registry.factory(GOOD) is factory


def test_automatic_loading_logs_what_is_broken_once(site, registry, caplog) -> None:
    site.install(BAD, "raise ValueError('no luck')")
    for _ in range(2):
        registry.automatic_factories()
    about_it = [record for record in caplog.records if "no luck" in record.message]
    assert [record.name for record in about_it] == ["onnxplug.plugins"]


def test_the_registry_reads_the_variables_of_the_process(
    site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install(GOOD)
    monkeypatch.setenv("ONNXPLUG_BLOCK", GOOD)
    assert PluginRegistry().resolve(GOOD).state is PluginState.BLOCKED
