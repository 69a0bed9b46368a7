"""What the README and the docs show is run, and does what they say.

Python blocks of a page are run in order, in one namespace.  In console blocks, lines
``$ onnxplug …`` are run and what follows is compared with what they print; numbers
that depend on the machine may differ.  Other commands belong in ``sh`` blocks, which
are not run.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from onnxplug.cli.main import main
from onnxplug.plugins import registry

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for pattern in ("README.md", "*/README.md", "plugins/*/README.md", "docs/**/*.md")
    for page in sorted(ROOT.glob(pattern))
]


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


def with_blocks(language: str) -> list[Path]:
    return [page for page in PAGES if any(b.language == language for b in blocks(page))]


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(autouse=True)
def beside_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the demo in it, and no plugin loaded yet."""
    monkeypatch.setattr(registry, "_records", None)
    if "CPUExecutionProvider" not in [record.name for record in registry.records()]:
        pytest.skip("onnxplug-cpu is not installed")
    shutil.copytree(ROOT / "demo", tmp_path / "demo")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", with_blocks("python"), ids=page_name)
def test_python_blocks_run(page: Path) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python":
            # as many empty lines before it as make its line numbers the page's
            padded = "\n" * (block.line - 1) + block.text
            exec(compile(padded, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", with_blocks("console"), ids=page_name)
def test_console_blocks_print_what_they_show(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for block in blocks(page):
        if block.language != "console":
            continue
        for command in commands(block):
            assert command.argv[0] == "onnxplug", "other commands go in sh blocks"
            code = main(command.argv[1:])
            printed = capsys.readouterr()
            assert code == 0, printed.err
            assert loosely(printed.out.splitlines()) == loosely(command.shown)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_block_names_its_language(page: Path) -> None:
    known = {"python", "console", "sh", "text"}
    assert {block.language for block in blocks(page)} <= known
