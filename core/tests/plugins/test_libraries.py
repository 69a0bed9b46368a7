"""Libraries registered by hand: each form of target, handles, and use by sessions."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import onnxplug.plugins
from onnxplug import ep
from onnxplug.errors import (
    LibraryInUse,
    OptionError,
    PluginConflict,
    PluginIncompatible,
    PluginLoadError,
    PluginNotFound,
)
from onnxplug.plugins import LibraryForm, PluginState, hosted
from onnxplug_testing import ToyFactory, toy

TOY = ToyFactory.name
ONE, TWO = "XOneExecutionProvider", "XTwoExecutionProvider"


class Session:
    """Stands for a session: all that the registry does with one is to hold it."""


@pytest.fixture
def plugin_file(site, tmp_path: Path) -> Path:
    """A Python file that supplies two EPs, in a folder that is not on ``sys.path``."""
    path = tmp_path / "elsewhere" / "my plugin.py"
    path.parent.mkdir()
    path.write_text(site.code(ONE, TWO, extra="import sys; found_at = __name__"))
    return path


@pytest.fixture(autouse=True)
def modules_and_path() -> Iterator[None]:
    """Nothing of a test's files is left in ``sys.modules``, nor in ``sys.path``."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    assert sys.path == path
    for name in set(sys.modules) - modules:
        if name.startswith("onnxplug_file_"):
            del sys.modules[name]


def private_modules() -> list[str]:
    return sorted(name for name in sys.modules if name.startswith("onnxplug_file_"))


@pytest.fixture(autouse=True)
def without_those_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in private_modules():
        monkeypatch.delitem(sys.modules, name)


# Forms of targets...


class Hooks:
    """An object with hooks."""

    @ep.hookimpl
    def onnxplug_ep_factories(self) -> list[ep.EpFactory]:
        return [ToyFactory()]


@pytest.mark.parametrize(
    ("target", "source"),
    [
        (ToyFactory(), "onnxplug_testing.toy.ToyFactory"),
        (ToyFactory, "onnxplug_testing.toy.ToyFactory"),
        (toy, "onnxplug_testing.toy"),
        (Hooks(), f"{__name__}.Hooks"),
    ],
    ids=["factory", "class", "module", "hooks"],
)
def test_an_object_is_a_library(registry, target: object, source: str) -> None:
    library = registry.register_ep_library("mine", target)
    assert library == ("mine", LibraryForm.OBJECT, source, (TOY,), target, ())
    assert registry.libraries() == [library]
    assert registry.factory("toy").name == TOY
    assert registry.resolve("toy").state is PluginState.READY
    if isinstance(target, ToyFactory):
        assert registry.factory("toy") is target


@pytest.mark.parametrize("target", [None, 3, ModuleType("empty"), object, b"a.py"])
def test_an_object_without_eps_is_none(registry, target: object) -> None:
    with pytest.raises(PluginLoadError, match="supplies no EP: it is no EpFactory"):
        registry.register_ep_library("mine", target)
    assert registry.libraries() == []


@pytest.mark.parametrize("as_text", [False, True])
def test_a_python_file_is_a_library(registry, plugin_file: Path, as_text: bool) -> None:
    target = str(plugin_file) if as_text else plugin_file
    library = registry.register_ep_library("my lib", target)
    assert (library.form, library.eps) == (LibraryForm.FILE, (ONE, TWO))
    assert library.source == str(plugin_file)
    module = sys.modules[type(registry.factory(ONE)).__module__]
    assert module.__name__ == module.found_at == "onnxplug_file_my_lib"
    assert module.__file__ == str(plugin_file)
    (host,) = module.made
    assert host.logger.name == f"onnxplug.plugin.{module.__name__}"

    registry.unregister_ep_library("my lib")
    assert private_modules() == []
    again = registry.register_ep_library("my lib", target)
    assert again.eps == (ONE, TWO)


def test_a_file_beside_the_program_is_told_by_its_ending(
    registry, plugin_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(plugin_file.parent)
    library = registry.register_ep_library("mine", plugin_file.name)
    assert library.source == str(plugin_file)


def test_handles_that_look_alike_do_not_share_a_module(
    registry, site, plugin_file: Path
) -> None:
    other = plugin_file.with_name("other.py")
    other.write_text(site.code("XOtherExecutionProvider"))
    registry.register_ep_library("a-b", plugin_file)
    registry.register_ep_library("a b", other)
    assert private_modules() == ["onnxplug_file_a_b", "onnxplug_file_a_b_2"]


@pytest.mark.parametrize(
    "code",
    ["1 / 0", "raise SystemExit", "import no_such_module", "x = 1"],
)
def test_a_python_file_that_fails_leaves_nothing_behind(
    registry, plugin_file: Path, code: str
) -> None:
    plugin_file.write_text(code)
    with pytest.raises(PluginLoadError, match=r"'mine'.*my plugin\.py") as raised:
        registry.register_ep_library("mine", plugin_file)
    assert raised.value.plugin == "mine"
    assert private_modules() == []
    assert registry.libraries() == []


def test_an_interrupt_leaves_nothing_behind(registry, plugin_file: Path) -> None:
    plugin_file.write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        registry.register_ep_library("mine", plugin_file)
    assert private_modules() == []


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("./missing.py", "missing.py, which does not exist"),
        ("missing.SO", "which does not exist"),
        (r"C:\missing.dll", "which does not exist"),
        ("https://example.org/plugin", "which does not exist"),
        (Path("."), "which is a folder"),
    ],
)
def test_a_file_must_exist(registry, target: str | Path, told: str) -> None:
    with pytest.raises(PluginNotFound, match=told):
        registry.register_ep_library("mine", target)


def test_a_name_in_a_module_is_a_library(registry) -> None:
    target = "onnxplug_testing:toy.ToyFactory"
    library = registry.register_ep_library("mine", target)
    assert library[:4] == ("mine", LibraryForm.MODULE, target, (TOY,))


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("onnxplug_testing:toy.Tory", "onnxplug_testing:toy has no attribute 'Tory'"),
        ("onnxplug_testing:tory.Toy", "onnxplug_testing has no attribute 'tory'"),
        ("onnxplug.no_such:toy", "No module named 'onnxplug.no_such'"),
        ("no_such:toy", "No module named 'no_such'"),
    ],
)
def test_the_part_that_is_missing_is_told(registry, target: str, told: str) -> None:
    with pytest.raises(PluginLoadError, match=told):
        registry.register_ep_library("mine", target)


@pytest.mark.parametrize("target", [":", "a:", ":b", "a:b:c", "a b:c", "a..b:c"])
def test_a_path_in_a_module_has_a_form(registry, target: str) -> None:
    with pytest.raises(OptionError, match=r"expected package\.module:attr"):
        registry.register_ep_library("mine", target)


def test_an_installed_ep_is_a_library(registry, site, states) -> None:
    site.install([ONE, TWO], distribution="x-both")
    library = registry.register_ep_library("mine", "xone")
    assert library[:4] == ("mine", LibraryForm.ENTRY_POINT, ONE, (ONE, TWO))
    assert states(registry) == {ONE: "ready", TWO: "ready"}
    again = registry.register_ep_library("second handle", TWO)
    assert again.eps == (ONE, TWO)
    assert registry.register_ep_library("mine", ONE) is library

    registry.unregister_ep_library("mine")
    assert registry.libraries() == [again]
    assert states(registry) == {ONE: "ready", TWO: "ready"}


def test_an_installed_ep_that_is_unknown_brings_the_nearest(registry, site) -> None:
    site.install(ONE)
    registry.register_ep_library("mine", toy)
    with pytest.raises(PluginNotFound, match=r"Did you mean 'xone'\?"):
        registry.register_ep_library("other", "xonne")
    with pytest.raises(PluginNotFound):  # it is known, and not installed
        registry.register_ep_library("other", TOY)


def test_an_installed_ep_that_is_broken_is_an_error(registry, site) -> None:
    site.install(ONE, "1 / 0")
    with pytest.raises(PluginLoadError, match="ZeroDivisionError"):
        registry.register_ep_library("mine", ONE)
    assert registry.libraries() == []


# Native libraries...


def compile_library(path: Path, code: str, *flags: str) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler on Linux")
    source = path.parent / "source.c"
    source.write_text(code)
    command = [compiler, "-shared", "-fPIC", *flags, "-o", path, source]
    subprocess.run(command, check=True)
    return path


# a library that is loaded by mistake ends the program
CRASH = "#include <stdlib.h>\n__attribute__((constructor)) void c(void) { abort(); }\n"


@pytest.mark.parametrize(
    ("symbols", "error", "told"),
    [
        (
            ["CreateEpFactories", "ReleaseEpFactory", "PyInit_native"],
            PluginIncompatible,
            "CreateEpFactories.  onnxplug-native hosts those, and is not installed",
        ),
        (["onnxplug_get_ep_api"], PluginIncompatible, "which is reserved"),
        (["PyInit_other"], PluginLoadError, "extension module other.*named for 'nat"),
        (
            ["unrelated"],
            PluginLoadError,
            "of CreateEpFactories, PyInit_<module> and onnxplug_get_ep_api it exports",
        ),
    ],
)
def test_a_native_library_is_told_by_its_symbols_and_not_loaded(
    registry,
    tmp_path: Path,
    monkeypatch,
    symbols: list[str],
    error: type[Exception],
    told: str,
) -> None:
    monkeypatch.setattr(hosted, "find_advertised", lambda *_: [])
    code = CRASH + "".join(
        f"int {symbol}(void) {{ return 0; }}\n" for symbol in symbols
    )
    path = compile_library(tmp_path / "native.so", code)
    with pytest.raises(error, match=told):
        registry.register_ep_library("mine", path)


def test_symbols_that_are_imported_or_hidden_do_not_count(
    registry, tmp_path: Path
) -> None:
    code = CRASH + (
        "extern int CreateEpFactories(void);\n"
        "static int PyInit_native(void) { return 1; }\n"
        '__attribute__((visibility("hidden"))) int onnxplug_get_ep_api(void)'
        " { return 2; }\n"
        "int f(void) { return CreateEpFactories() + PyInit_native(); }\n"
    )
    path = compile_library(tmp_path / "native.so", code)
    with pytest.raises(PluginLoadError, match="it exports none"):
        registry.register_ep_library("mine", path)


@pytest.mark.parametrize("name", ["text.so", "text.dll", "folder/text"])
def test_a_file_that_is_no_library_is_an_error(
    registry, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("hello")
    with pytest.raises(PluginLoadError, match="begins with b'hell'"):
        registry.register_ep_library("mine", str(path))


EXTENSION = r"""
#include <Python.h>
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "accel", 0, -1, 0};
PyMODINIT_FUNC PyInit_accel(void) {
    PyObject *module = PyModule_Create(&definition);
    PyObject *names = PyModule_GetDict(module);
    PyDict_SetItemString(names, "__builtins__", PyEval_GetBuiltins());
    PyObject *done = PyRun_String(
        "import onnxplug_testing\n"
        "from onnxplug import ep\n"
        "@ep.hookimpl\n"
        "def onnxplug_ep_factories():\n"
        "    return [onnxplug_testing.ToyFactory()]\n",
        Py_file_input, names, names);
    if (!done) { Py_DECREF(module); return 0; }
    Py_DECREF(done);
    return module;
}
"""


def test_an_extension_module_is_a_library(registry, tmp_path: Path) -> None:
    include = sysconfig.get_paths()["include"]
    if not Path(include, "Python.h").exists():
        pytest.skip("needs Python.h")
    name = f"accel{sysconfig.get_config_var('EXT_SUFFIX')}"
    path = compile_library(tmp_path / name, EXTENSION, f"-I{include}")
    library = registry.register_ep_library("mine", path)
    assert (library.form, library.eps) == (LibraryForm.FILE, (TOY,))
    assert private_modules() == ["onnxplug_file_mine.accel"]
    registry.unregister_ep_library("mine")
    assert private_modules() == []


# Handles...


@pytest.mark.parametrize("handle", ["", "  ", None, 3])
def test_a_handle_is_a_text(registry, handle: object) -> None:
    with pytest.raises(OptionError, match="expected a name of your choosing"):
        registry.register_ep_library(handle, toy)


def test_registering_the_same_again_changes_nothing(registry, plugin_file) -> None:
    targets = {
        "object": toy,
        "file": plugin_file,
    }
    for handle, target in targets.items():
        library = registry.register_ep_library(handle, target)
        assert registry.register_ep_library(handle, target) is library
    assert registry.register_ep_library("file", str(plugin_file)) is library
    relative = os.path.relpath(plugin_file)
    assert registry.register_ep_library("file", relative) is library
    assert [each.name for each in registry.libraries()] == ["file", "object"]


def test_a_handle_is_taken_once(registry, plugin_file: Path) -> None:
    registry.register_ep_library("mine", toy)
    for target in (plugin_file, ToyFactory(), "onnxplug_testing:toy"):
        with pytest.raises(PluginConflict, match="registered as 'mine' already, from"):
            registry.register_ep_library("mine", target)


def test_an_ep_name_is_taken_once(registry, site, plugin_file: Path) -> None:
    site.install(TWO, distribution="x-two")
    with pytest.raises(PluginConflict, match=f"{TWO}.* known already, from x-two"):
        registry.register_ep_library("mine", plugin_file)
    assert private_modules() == []
    assert [r.name for r in registry.records() if r.name == ONE] == []  # all or none
    registry.register_ep_library("toy", toy)
    with pytest.raises(PluginConflict, match=f"{TOY}.* known already"):
        registry.register_ep_library("toy again", toy)
    with pytest.raises(PluginConflict, match=f"{TOY}.* known already"):
        registry.add(ToyFactory())


def test_a_library_for_another_spi_is_incompatible(
    registry, site, plugin_file: Path
) -> None:
    plugin_file.write_text(site.code(ONE, version=(7, 0)))
    with pytest.raises(PluginIncompatible, match=r"SPI 7\.0"):
        registry.register_ep_library("mine", plugin_file)
    assert private_modules() == []


def test_a_library_that_registers_another_while_it_loads_is_stopped(
    registry, plugin_file: Path
) -> None:
    code = "import registry_of_the_test as r\nr.register_ep_library('b', 'a:b')"
    plugin_file.write_text(code)
    sys.modules["registry_of_the_test"] = registry
    try:
        with pytest.raises(PluginLoadError, match="library 'mine' asked for library"):
            registry.register_ep_library("mine", plugin_file)
    finally:
        del sys.modules["registry_of_the_test"]


# Unregistering...


class Closable(ToyFactory):
    """Counts how often it is closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_unregistering_forgets_the_eps_and_closes_their_factories(registry) -> None:
    factory = Closable()
    registry.register_ep_library("mine", factory)
    registry.unregister_ep_library("mine")
    assert factory.closed == 1
    assert registry.libraries() == []
    with pytest.raises(PluginNotFound):
        registry.factory(TOY)
    assert registry.register_ep_library("mine", factory).eps == (TOY,)


def test_a_factory_that_fails_to_close_is_gone_all_the_same(registry, caplog) -> None:
    class Stuck(ToyFactory):
        def close(self) -> None:
            raise OSError("stuck")

    registry.register_ep_library("mine", Stuck)
    registry.unregister_ep_library("mine")
    assert "stuck" in caplog.text
    assert registry.libraries() == []


def test_an_unknown_handle_brings_the_nearest(registry) -> None:
    registry.register_ep_library("accelerator", toy)
    with pytest.raises(PluginNotFound, match=r"Did you mean 'accelerator'\?") as raised:
        registry.unregister_ep_library("acelerator")
    assert "Registered libraries: accelerator" in str(raised.value)


def test_a_library_in_use_stays(registry, plugin_file: Path) -> None:
    registry.register_ep_library("mine", plugin_file)
    first, second = Session(), Session()
    registry.attach(ONE, first)
    registry.attach(ONE, first)
    registry.attach(TWO, first)
    with pytest.raises(LibraryInUse, match=f"in use: 1 session on {ONE} or {TWO}"):
        registry.unregister_ep_library("mine")
    registry.attach(TWO, second)
    with pytest.raises(LibraryInUse, match="in use: 2 sessions"):
        registry.unregister_ep_library("mine")
    assert registry.factory(ONE).name == ONE

    registry.detach(ONE, first)
    registry.detach(TWO, first)
    registry.detach(TWO, first)
    with pytest.raises(LibraryInUse, match=f"in use: 1 session on {TWO};") as raised:
        registry.unregister_ep_library("mine")
    assert raised.value.plugin == "mine"
    del second, raised  # a session that is dropped uses nothing
    gc.collect()
    registry.unregister_ep_library("mine")


def test_an_installed_library_in_use_keeps_its_handle(registry, site) -> None:
    site.install(ONE)
    registry.register_ep_library("mine", ONE)
    session = Session()
    registry.attach(ONE, session)
    with pytest.raises(LibraryInUse):
        registry.unregister_ep_library("mine")
    registry.detach(ONE, session)
    registry.unregister_ep_library("mine")


def test_a_session_cannot_use_an_ep_that_is_gone(registry) -> None:
    with pytest.raises(PluginNotFound, match="was its library unregistered"):
        registry.attach("XGone", Session())
    registry.detach("XGone", Session())


def test_what_was_added_without_a_handle_is_no_library(registry) -> None:
    record = registry.add(ToyFactory())
    assert (record.distribution, record.state) == ("registered", PluginState.READY)
    assert registry.libraries() == []
    registry.remove(TOY)
    registry.remove(TOY)
    with pytest.raises(PluginNotFound):
        registry.factory(TOY)


def test_libraries_outlast_a_refresh(registry, plugin_file: Path) -> None:
    library = registry.register_ep_library("mine", plugin_file)
    registry.refresh()
    assert registry.libraries() == [library]


def test_the_process_has_its_own_and_onnx_runtimes_spellings(
    plugin_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = onnxplug.plugins
    monkeypatch.setattr(plugins.registry.table, "_records", None)
    library = plugins.register_ep_library("mine", SimpleNamespace(**vars(toy)))
    assert plugins.libraries() == [library]
    plugins.unregister_ep_library("mine")
    assert plugins.register_execution_provider_library("ort", plugin_file) is None
    assert [each.name for each in plugins.libraries()] == ["ort"]
    plugins.unregister_execution_provider_library("ort")
    with pytest.raises(PluginNotFound):
        plugins.unregister_execution_provider_library("ort")
