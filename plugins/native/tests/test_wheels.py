"""Libraries in wheels that were made for ONNX Runtime: found, used, kept out."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import onnxplug
from onnxplug import errors
from onnxplug.plugins import PluginState, registry
from onnxplug.plugins.wheels import ep_names

from .conftest import feeds, product

EXAMPLE = "ExampleExecutionProvider"
MODULE = "onnxruntime_ep_example"

Install = Callable[..., None]


@pytest.fixture
def install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., None]]:
    """Installs a wheel whose module has a text; here and in processes started here."""
    known = {record.name: record for record in registry.records()}

    def write(text: str, module: str = MODULE, suffix: str = "") -> None:
        package = tmp_path / module
        package.mkdir()
        (package / "__init__.py").write_text(text)
        facts = tmp_path / f"{module}{suffix.replace('-', '_')}-1.2.3.dist-info"
        facts.mkdir()
        name = module.replace("_", "-") + suffix
        (facts / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2.3\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(registry.table, "_records", None)
        monkeypatch.setattr(registry.table, "_settings", None)

    yield write
    for record in registry.records():
        if record.name not in known and record.factory is not None:
            record.factory.close()
    sys.modules.pop(MODULE, None)


def module_of(library: Path | str, names: str = f"[{EXAMPLE!r}]") -> str:
    return (
        "import pathlib\n\n"
        f"def get_library_path():\n    return {str(library)!r}\n\n"
        f"def get_ep_names():\n    return {names}\n"
    )


def test_a_wheel_is_listed_without_being_imported(install) -> None:
    install("raise_if_it_is_imported\n" + module_of("nowhere.so"))
    (record,) = [each for each in onnxplug.get_plugins() if each.name == EXAMPLE]
    assert (record.distribution, record.version) == ("onnxruntime-ep-example", "1.2.3")
    assert registry.resolve("example") == record
    assert record.state is PluginState.FOUND


def test_a_wheel_is_used_by_the_name_of_its_ep(install, compile_example) -> None:
    install(module_of(compile_example()))
    with onnxplug.InferenceSession(product(2, 3), providers=["example", "cpu"]) as s:
        assert s.get_providers()[0] == EXAMPLE
        given = feeds(2, 3)
        (found,) = s.run(None, given)
    expected = (given["x"] + given["x"]) * given["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_wheel_that_wants_onnxruntime_is_used_without_being_imported(
    install, compile_example, tmp_path
) -> None:
    """Its library is that of its files which exports what such libraries do."""
    install(f"raise ImportError('onnxruntime')\nEP_NAME = {EXAMPLE!r}\n")
    folder = tmp_path / MODULE / "lib"
    folder.mkdir()
    (folder / "libother.so").write_text("no library")
    shutil.copy(compile_example(), folder / "libep.so")
    with onnxplug.InferenceSession(product(2, 3), providers=["example", "cpu"]) as s:
        assert s.get_providers()[0] == EXAMPLE
    assert registry.resolve("example").distribution == "onnxruntime-ep-example"


def test_a_wheel_for_a_version_of_cuda_has_a_module_without_it(
    install, compile_example, tmp_path
) -> None:
    """As TensorRT's for RTX, which would import ONNX Runtime, and write files."""
    module = "onnxruntime_ep_nv_tensorrt_rtx"
    text = f"raise ImportError('onnxruntime')\n{module_of('nowhere.so')}"
    install(text, module=module, suffix="-cu13")
    shutil.copy(compile_example(), tmp_path / module / "libep.so")
    with onnxplug.InferenceSession(product(2, 3), providers=["example", "cpu"]) as s:
        assert s.get_providers()[0] == EXAMPLE
    found = registry.resolve("example").distribution
    assert found == "onnxruntime-ep-nv-tensorrt-rtx-cu13"


def test_a_wheel_without_a_library_among_its_files_says_so(install) -> None:
    install(f"EP_NAME = {EXAMPLE!r}\n")
    with pytest.raises(errors.PluginLoadError, match=r"export CreateEp.*found none"):
        onnxplug.InferenceSession(product(2, 3), providers=["example"])


def test_a_wheel_is_blocked(install, monkeypatch) -> None:
    monkeypatch.setenv("ONNXPLUG_BLOCK", "example")
    install(module_of("nowhere.so"))
    with pytest.raises(errors.PluginBlocked, match="ONNXPLUG_BLOCK"):
        onnxplug.InferenceSession(product(2, 3), providers=["example"])


def test_a_wheel_without_its_library_says_so(install) -> None:
    install(module_of("/nowhere/libep.so"))
    with pytest.raises(errors.PluginLoadError, match=r"libep\.so"):
        onnxplug.InferenceSession(product(2, 3), providers=["example"])


def test_names_are_read_from_the_text_of_the_module() -> None:
    assert ep_names("def get_ep_names():\n  return ['A', 'B']") == ["A", "B"]
    assert ep_names("_N = 'A'\ndef get_ep_names():\n  return [_N]") == ["A"]
    assert ep_names("def get_ep_name():\n  return 'A'") == ["A"]
    assert ep_names("EP_NAME = 'A'") == ["A"]
    assert ep_names("", "A") == ["A"]
    with pytest.raises(ValueError, match="returns names as they are"):
        ep_names("def get_ep_names():\n  return list(range(3))")


def test_a_wheel_that_hides_its_names_is_left_out_with_a_warning(
    install, caplog
) -> None:
    install(module_of("nowhere.so", names="compute_names()"))
    with caplog.at_level(logging.WARNING, logger="onnxplug.plugins"):
        assert EXAMPLE not in [record.name for record in registry.records()]
    assert "onnxruntime-ep-example cannot be told" in caplog.text
