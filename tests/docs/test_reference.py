"""The reference pages are complete, and links lead somewhere."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from onnxplug import entries, errors, foreign
from onnxplug.ep import SPI_VERSION, DeviceType, HardwareDevice
from onnxplug.plugins import registry
from onnxplug.tolerances import EXACT, TOLERANCES
from onnxplug_cli.main import build_parser

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "core/*.md", "plugins/*/*.md", "demo/*.md")
    for page in ROOT.glob(pattern)
)

HOW = "python tests/docs/reference.py"


def load_script(name: str) -> ModuleType:
    """A script beside this file, which is no package."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"docs_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


writer = load_script("reference")
spi_version = load_script("spi_version")
versions = load_script("versions")


@pytest.mark.parametrize("name", sorted({p.module for p in writer.PAGES.values()}))
def test_every_public_name_has_a_place(name: str) -> None:
    placed = [
        each
        for page in writer.PAGES.values()
        if page.module == name
        for names in page.sections.values()
        for each in names
    ]
    assert sorted(placed) == sorted(importlib.import_module(name).__all__)


@pytest.mark.parametrize("name", writer.PAGES)
def test_the_reference_agrees_with_the_code(name: str) -> None:
    written = (ROOT / "docs/reference" / name).read_text("utf-8")
    assert written == writer.write(name), f"run {HOW}"


def test_the_page_of_operators_is_what_the_command_lists() -> None:
    written = (ROOT / "docs/reference" / writer.OPERATORS).read_text("utf-8")
    # not in an assertion: the difference of two long texts takes minutes to show
    if written != writer.write_operators():
        pytest.fail(f"{writer.OPERATORS} differs from what is installed; run {HOW}")


def test_the_page_for_authors_agrees_with_the_code() -> None:
    written = (ROOT / "docs/reference" / writer.AUTHORING).read_text("utf-8")
    assert written == writer.write_authoring(), f"run {HOW}"


def is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def test_the_page_of_an_ep_says_what_it_never_ran_on() -> None:
    """As its factory does, which ``onnxplug eps`` and ``doctor`` ask."""
    pages = {path.stem: path for path in (ROOT / "docs/reference/eps").glob("*.md")}
    assert {"cpu", "openvino"} <= set(pages)
    for short, page in pages.items():
        if short == "native":
            continue  # of no EP, but of those that libraries bring
        if not is_installed(f"onnxplug-{short}"):
            continue  # `make test-torch` installs that EP, and runs this test, too
        factory = registry.factory(short)
        hardware = [
            HardwareDevice(type=kind, vendor_id=factory.vendor_id)
            for kind in DeviceType
        ]
        assert factory.tried_on is not None, short
        rows = [
            line
            for line in page.read_text("utf-8").splitlines()
            if "never ran on hardware in our hands" in line
        ]
        kinds = {pair.device.type for pair in factory.supported_devices(hardware)}
        for kind in kinds:
            said = any(f"{kind.upper()}s" in row for row in rows)
            assert said is (kind not in factory.tried_on), (short, kind)


def test_every_page_is_in_the_index() -> None:
    folder = ROOT / "docs"
    index = (folder / "README.md").read_text("utf-8")
    linked = {
        (folder / target).resolve() for target in re.findall(r"\]\(([^)#]+)", index)
    }
    pages = {page.resolve() for page in folder.rglob("*.md")}
    missing = pages - linked - {(folder / "README.md").resolve()}
    assert not {str(page.relative_to(ROOT)) for page in missing}


def error_rows() -> list[str]:
    """The table of errors as it should be."""
    rows = []
    for name, error in vars(errors).items():
        if inspect.isclass(error) and error.__module__ == errors.__name__:
            bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
            sentence = inspect.getdoc(error).split("\n\n")[0].replace("\n", " ")
            rows.append(f"| `{name}` | {bases} | {sentence.replace('``', '`')} |")
    return rows


def test_every_error_is_described_in_its_own_words() -> None:
    page = (ROOT / "docs/reference/errors.md").read_text("utf-8")
    table = [line for line in page.splitlines() if line.startswith("| `")]
    assert table == error_rows()


def options(parser: argparse.ArgumentParser) -> set[str]:
    found = set()
    for action in parser._actions:
        found.update(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                found |= {name} | options(command)
    return found


def test_every_command_and_option_is_described() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text("utf-8")
    described = set(re.findall(r"`([a-z-]+)[` ]", page))
    assert options(build_parser()) - {"-h"} <= described | {"--version"}


def test_the_tolerances_are_those_that_are_used() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text("utf-8")
    table = page.partition("| type | relative | absolute |\n")[2].partition("\n\n")[0]
    described = {
        name: (float(relative), float(absolute))
        for names, relative, absolute in re.findall(
            r"^\| (.*) \| (.*) \| (.*) \|$", table, re.M
        )
        if names.strip("- ")
        for name in names.split(", ")
    }
    assert described.pop("any other") == EXACT
    assert described == TOLERANCES


def test_every_config_entry_of_the_host_is_described() -> None:
    page = (ROOT / "docs/reference/config-entries.md").read_text("utf-8")
    rows = "".join(line for line in page.splitlines() if line.startswith("| `"))
    described = set(re.findall(r"`([a-z0-9_.]+)`", rows))
    assert {*entries.SESSION, *entries.RUN, *foreign.SESSION_ENTRIES} <= described


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8")):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target


def test_the_page_of_versions_agrees_with_the_distributions() -> None:
    written = versions.PAGE.read_text("utf-8")
    assert written == versions.write(), "run python tests/docs/versions.py"


def test_the_distributions_of_this_state_go_together() -> None:
    found = {each.name: each for each in versions.distributions()}
    assert len(found) >= 17
    for each in found.values():
        for needed in each.ours:
            assert needed.specifier.contains(found[needed.name].version), each.name
            exact = str(needed.specifier).startswith("==")
            assert exact is (each.name in versions.PARTS_OF_THE_HOST), each.name
        for spi in filter(None, each.spi.split(", ")):
            assert tuple(map(int, spi.split("."))) <= SPI_VERSION, each.name


def anchors(page: Path) -> set[str]:
    """What may follow a ``#`` in a link to *page*, as code hosts name headings."""
    text = re.sub(r"^( *```).*?^\1", "", page.read_text("utf-8"), flags=re.M | re.S)
    found = set(re.findall(r'<a id="([^"]+)">', text))
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        words = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        same = re.compile(rf"{re.escape(words)}(-\d+)?")
        taken = len([each for each in found if same.fullmatch(each)])
        found.add(f"{words}-{taken}" if taken else words)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_headings(page: Path) -> None:
    for target, anchor in re.findall(
        r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text("utf-8")
    ):
        to = (page.parent / target) if target else page
        if to.suffix == ".md" and not target.startswith("http"):
            assert anchor in anchors(to), f"{target}#{anchor}"


@pytest.mark.parametrize("page", list(spi_version.pages()), ids=lambda page: page.name)
def test_pages_show_the_version_of_the_interface_as_it_is(page: Path) -> None:
    how = "run python tests/docs/spi_version.py"
    text = page.read_text("utf-8")
    assert text == spi_version.written(text), how
