"""What the README and the docs show is run, and does what they say.

The blocks of a page are taken in order.  Python blocks are run in one namespace.  In
console blocks, lines ``$ onnxplug …`` are run and what follows is compared with what
they print; numbers that depend on the machine may differ.  A block whose first line is
a comment with a path is written to that file; one whose path is that of a source in
``examples/`` is an excerpt, as it stands there, and is not run.  Other commands belong
in ``sh`` blocks, which are not run, save that a ``pip install`` of a folder that the
page has written makes its distribution known, and ``pip uninstall`` forgets it.  What
was and what is now stands in ``diff`` blocks, which are not run.
"""

from __future__ import annotations

import configparser
import importlib.util
import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from onnxplug.attached import AttachedSessions
from onnxplug.plugins import GROUP, FoundPlugin, find_plugins, registry
from onnxplug.plugins.domains import DomainRegistry
from onnxplug_cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for pattern in (
        "README.md",
        "*/README.md",
        "examples/*/README.md",
        "plugins/*/README.md",
        "docs/**/*.md",
    )
    for page in sorted(ROOT.glob(pattern))
]

NEEDS = {
    "docs/tutorials/write-a-device-ep.md": ("opencl", "pyopencl"),
    "docs/how-to/serve-models.md": ("serve", "onnxplug_serve"),
    "docs/how-to/run-on-ray.md": ("ray", "ray"),
    "plugins/ray/README.md": ("ray", "ray"),
}
"""What pages need that is installed for one target only: the word by which
ONNXPLUG_REQUIRE asks for it, and the package."""


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    line: int
    text: str


class Command(NamedTuple):
    """A command in a console block, and what it is said to print."""

    argv: list[str]
    shown: list[str]


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for fence in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield Block(fence[1], text.count("\n", 0, fence.start()) + 2, fence[2])


def commands(block: Block) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        words, *shown = part.splitlines()
        yield Command(shlex.split(words), shown)


def loosely(lines: list[str]) -> list[str]:
    """Without what differs between machines: times, fractions, bars, alignment."""
    text = "\n".join(line for line in lines if line.strip())
    text = re.sub(r"\d[\d.e+-]* (s|ms|µs)\b", "TIME", text)
    text = re.sub(r"\d+\.\d+(e[+-]\d+)?", "FRACTION", text)
    text = re.sub(r" *[█▏▎▍▌▋▊▉]+", "", text)
    return [" ".join(line.split()) for line in text.splitlines()]


def with_blocks(*languages: str) -> list[Path]:
    return [
        page for page in PAGES if any(b.language in languages for b in blocks(page))
    ]


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(autouse=True)
def beside_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the demo in it, no plugin loaded yet, and none but the CPU's.

    What a page installs is there, too; what this environment has besides is not.
    """

    monkeypatch.setattr(registry.table, "_find", partial(find, GROUP))
    forget_plugins(monkeypatch)
    if "CPUExecutionProvider" not in [record.name for record in registry.records()]:
        pytest.skip("onnxplug-cpu is not installed")
    shutil.copytree(ROOT / "demo", tmp_path / "demo")
    monkeypatch.chdir(tmp_path)


def find(group: str) -> list[FoundPlugin]:
    """What the CPU EP's distribution and those that the page has written advertise."""
    known = {
        "onnxplug-cpu",
        *(path.parent.name for path in Path().glob("*/pyproject.toml")),
    }
    return [each for each in find_plugins(group) if each.distribution in known]


def forget_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the registry look anew for what is installed, and again after the test."""
    monkeypatch.setattr(registry.table, "_records", None)
    monkeypatch.setattr(registry.table, "_sessions", AttachedSessions())
    monkeypatch.setattr(registry, "domains", DomainRegistry(registry.settings, find))


def excerpt(block: Block) -> tuple[Path, str] | None:
    """The source in ``examples/`` that a block is of, and what it shows of that."""
    named = re.match(r"# (examples/[\w/.-]+)\n(.*)", block.text, re.DOTALL)
    return (ROOT / named[1], named[2]) if named else None


def require_what_is_needed(page: Path) -> None:
    """Skip a page that needs what is not here, or fail if it is asked for."""
    word, package = NEEDS.get(page_name(page), ("", ""))
    if not package or importlib.util.find_spec(package) is not None:
        return
    if word in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
        pytest.fail(f"{package} is not installed")
    pytest.skip(f"{package} is not installed; make test-{word} runs this page")


def write_file(block: Block) -> None:
    """Write a block that begins with the name of a file."""
    if named := re.match(r"# ([\w-]+/[\w/.-]+)\n", block.text):
        path = Path(named[1])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, "utf-8")


class Site:
    """The distributions that a page has installed: found, without asking pip."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._patch = patch
        patch.syspath_prepend(folder)

    def obey(self, command: str) -> None:
        """Do what matters of a line of a ``sh`` block."""
        match shlex.split(command):
            case ["pip", "install", "-e", folder] if Path(folder).is_dir():
                self._install(Path(folder).resolve())
            case ["pip", "uninstall", "-y", name]:
                self._uninstall(name)

    def _install(self, folder: Path) -> None:
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
        about = project["project"]
        info = self._info(about["name"])
        info.mkdir(parents=True)
        header = f"Name: {about['name']}\nVersion: {about['version']}\n"
        needs = [f"Requires-Dist: {line}\n" for line in about["dependencies"]]
        (info / "METADATA").write_text(header + "".join(needs) + "\n")
        entry_points = configparser.ConfigParser()
        entry_points.optionxform = str  # type: ignore[assignment,method-assign]
        entry_points.read_dict(about["entry-points"])
        with (info / "entry_points.txt").open("w") as file:
            entry_points.write(file)
        for module in folder.glob("*.py"):
            shutil.copy(module, self.folder)
            self._patch.delitem(sys.modules, module.stem, raising=False)
        forget_plugins(self._patch)

    def _uninstall(self, name: str) -> None:
        shutil.rmtree(self._info(name))
        forget_plugins(self._patch)

    def _info(self, name: str) -> Path:
        # a folder's name as pip writes it; the version plays no part
        return self.folder / f"{name.replace('-', '_')}-0.dist-info"


def run_console(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    for command in commands(block):
        assert command.argv[0] == "onnxplug", "other commands go in sh blocks"
        capsys.readouterr()
        code = main(command.argv[1:])
        printed = capsys.readouterr()
        assert code == 0, printed.err
        assert loosely(printed.out.splitlines()) == loosely(command.shown)


@pytest.mark.parametrize("page", with_blocks("python", "console"), ids=page_name)
def test_a_page_does_what_it_shows(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    require_what_is_needed(page)
    namespace: dict[str, object] = {"__name__": "__main__"}
    (tmp_path / "site").mkdir()
    site = Site(tmp_path / "site", monkeypatch)
    for block in blocks(page):
        if excerpt(block) is not None:
            continue
        write_file(block)
        if block.language == "python":
            # as many empty lines before it as make its line numbers the page's
            padded = "\n" * (block.line - 1) + block.text
            exec(compile(padded, str(page), "exec"), namespace)
        elif block.language == "console":
            run_console(block, capsys)
        elif block.language == "sh":
            for command in block.text.splitlines():
                site.obey(command)


@pytest.mark.parametrize("page", with_blocks("python"), ids=page_name)
def test_excerpts_are_as_the_example_has_them(page: Path) -> None:
    for found in map(excerpt, blocks(page)):
        if found is not None:
            source, text = found
            assert f"\n{text}" in source.read_text("utf-8")


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_block_names_its_language(page: Path) -> None:
    known = {"python", "console", "sh", "text", "toml", "diff"}
    assert {block.language for block in blocks(page)} <= known
