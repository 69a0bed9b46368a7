"""``onnxplug new-ep``: its names, its files, and that it overwrites nothing."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from onnxplug import __version__
from onnxplug.ep import SPI_VERSION
from onnxplug_cli.failure import UsageError
from onnxplug_cli.new_ep.distribution import files
from onnxplug_cli.new_ep.names import Names, names_of
from onnxplug_cli.new_ep.styles import STYLES


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("distribution", "ep", "expected"),
    [
        ("fancy-ep", None, ("fancy-ep", "fancy_ep", "FancyExecutionProvider")),
        ("onnxplug-fancy", None, ("onnxplug-fancy", "onnxplug_fancy", "Fancy")),
        ("fancy-npu-2", None, ("fancy-npu-2", "fancy_npu_2", "FancyNpu2")),
        (
            "fancy",
            "FancyNPUExecutionProvider",
            ("fancy", "fancy", "FancyNPUExecutionProvider"),
        ),
    ],
)
def test_names_follow_from_the_distribution_s(
    distribution: str, ep: str | None, expected: tuple[str, str, str]
) -> None:
    names = names_of(distribution, ep)
    wanted = Names(*expected)
    assert (names.distribution, names.module, names.stem) == (
        wanted.distribution,
        wanted.module,
        wanted.stem,
    )
    assert names.ep == f"{names.stem}ExecutionProvider"


@pytest.mark.parametrize(
    ("distribution", "ep", "words"),
    [
        ("", None, "is no name of a distribution"),
        ("fancy ep", None, "is no name of a distribution"),
        ("../fancy", None, "is no name of a distribution"),
        ("fancy-", None, "is no name of a distribution"),
        ("fäncy", None, "is no name of a distribution"),
        ("fancy-ep\n", None, "is no name of a distribution"),
        ("Fancy_EP", None, r"call 'Fancy_EP' 'fancy-ep' \(PEP 503\)"),
        ("fancy--ep", None, r"call 'fancy--ep' 'fancy-ep' \(PEP 503\)"),
        ("3d-ep", None, "'3d_ep', which is no name of Python's"),
        ("class", None, "'class', which is no name of Python's"),
        ("json", None, "would hide another 'json'; .* such as 'json-ep'"),
        ("conftest", None, "would hide another 'conftest'"),
        ("onnxplug-ep", None, "no EP's name follows from 'onnxplug_ep'"),
        ("onnxplug-3d", None, "no EP's name follows .* --ep-name"),
        ("fancy", "Fancy", "'Fancy' is no name of an EP"),
        ("fancy", "ExecutionProvider", "is no name of an EP"),
        ("fancy", "fancyExecutionProvider", "is no name of an EP"),
        ("fancy", "F\nExecutionProvider", "is no name of an EP"),
    ],
)
def test_what_is_no_name(
    cli, tmp_path: Path, distribution: str, ep: str | None, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        names_of(distribution, ep)
    chosen = [] if ep is None else ["--ep-name", ep]
    assert cli("new-ep", distribution, "--style", "kernels", *chosen).code == 2
    assert not list(tmp_path.iterdir())


def test_names_that_others_have(cli, toy: str, tmp_path: Path) -> None:
    outcome = cli("new-ep", "toy", "--style", "kernels")
    assert outcome.code == 1
    assert f"{toy} is known already, which users call 'toy', too" in outcome.err
    outcome = cli("new-ep", "host-ep", "--style", "kernels")
    assert outcome.code == 1
    assert "'host', which is what onnxplug calls itself" in outcome.err
    outcome = cli("new-ep", "numpy", "--style", "kernels")
    assert outcome.code == 1
    assert "a module 'numpy' is installed already" in outcome.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("style", STYLES)
def test_what_it_writes_and_says(cli, tmp_path: Path, style: str) -> None:
    outcome = cli("new-ep", "fancy-ep", "--style", style, "--folder", "a/b")
    assert outcome.code == 0
    found = {
        path.relative_to(tmp_path / "a/b").as_posix()
        for path in (tmp_path / "a/b").rglob("*")
        if path.is_file()
    }
    first, *lines = outcome.out.splitlines()
    assert first == f"wrote FancyExecutionProvider to a/b ({len(found)} files)"
    next_ = lines.index("next:")
    assert {line.strip() for line in lines[:next_]} == found
    assert {"README.md", "pyproject.toml", "src/fancy_ep/plugin.py"} <= found
    assert [line.strip() for line in lines[next_ + 1 :]] == [
        "cd a/b",
        "pip install -e '.[test]'",
        "pytest",
        "onnxplug eps fancy",
    ]


def test_what_it_says_in_json(cli, tmp_path: Path) -> None:
    written = cli("new-ep", "fancy-ep", "--style", "kernels", "--json").json
    assert written.pop("files") == sorted(
        path.relative_to(tmp_path / "fancy-ep").as_posix()
        for path in (tmp_path / "fancy-ep").rglob("*")
        if path.is_file()
    )
    assert written == {
        "distribution": "fancy-ep",
        "module": "fancy_ep",
        "ep": "FancyExecutionProvider",
        "style": "kernels",
        "folder": "fancy-ep",
    }


@pytest.mark.parametrize("hindrance", ["file", "link"])
def test_nothing_is_overwritten(cli, tmp_path: Path, hindrance: str) -> None:
    own = tmp_path / "fancy-ep" / "tests" / "conftest.py"
    own.parent.mkdir(parents=True)
    if hindrance == "file":
        own.write_text("mine")
    else:
        own.symlink_to(tmp_path / "elsewhere")
    outcome = cli("new-ep", "fancy-ep", "--style", "kernels")
    assert outcome.code == 1
    assert "tests/conftest.py exists, and is not overwritten" in outcome.err
    files_now = [path for path in tmp_path.rglob("*") if not path.is_dir()]
    assert files_now == [own]
    assert hindrance == "link" or own.read_text() == "mine"


def test_a_folder_that_is_there_is_filled(cli, tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text("mine")
    assert cli("new-ep", "fancy", "--style", "compile", "--folder", ".").code == 0
    assert (tmp_path / "LICENSE").read_text() == "mine"
    assert (tmp_path / "src/fancy/plugin.py").exists()


@pytest.mark.parametrize("style", STYLES)
def test_no_name_of_the_templates_is_left(style: str) -> None:
    texts = files(style, names_of("fancy-npu", "FancyNPUExecutionProvider"))
    for path, text in texts.items():
        assert not re.search("acme", path + text, re.IGNORECASE), path
    assert "class FancyNPUFactory(" in texts["src/fancy_npu/plugin.py"]


@pytest.mark.parametrize("style", STYLES)
def test_it_is_written_for_this_onnxplug(style: str) -> None:
    texts = files(style, names_of("fancy-ep"))
    plugin = ast.parse(texts["src/fancy_ep/plugin.py"])
    (spi_version,) = (
        ast.literal_eval(node.value)
        for node in ast.walk(plugin)
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "spi_version"
    )
    assert spi_version == SPI_VERSION
    project = tomllib.loads(texts["pyproject.toml"])["project"]
    major, minor = (int(part) for part in __version__.split(".")[:2])
    assert f"onnxplug>={major}.{minor},<{major}.{minor + 1}" in project["dependencies"]
    assert "license" not in project
