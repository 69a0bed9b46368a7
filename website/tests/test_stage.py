"""What is made of the repository's pages, and of versions, before anything is built."""

from __future__ import annotations

import json
import sys
from pathlib import Path, PurePosixPath

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import stage
import versions


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    pages = {
        "README.md": "# All\n\n[a](docs/how-to/a.md) [licence](LICENSE)\n",
        "LICENSE": "As is.\n",
        "docs/README.md": "# Index\n",
        "docs/how-to/a.md": "[b](../../plugins/b/README.md#c) [d](../../plugins)\n",
        "plugins/b/README.md": "# B\n\n[x](https://x.org) [here](#c)\n",
    }
    for name, text in pages.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_links_lead_to_places_on_the_site(repository: Path) -> None:
    pages = {str(target): text for target, text in stage.Site(repository).pages()}
    assert (
        pages["index.md"] == "# All\n\n[a](how-to/a.md) [licence](source/LICENSE.md)\n"
    )
    assert "[b](../plugins/b.md#c) [d](../source/plugins.md)" in pages["how-to/a.md"]
    assert "[x](https://x.org) [here](#c)" in pages["plugins/b.md"]
    assert "````text\nAs is.\n````" in pages["source/LICENSE.md"]
    assert "- [`plugins/b/`](../plugins/b.md)" in pages["source/plugins.md"]


def test_a_link_to_nothing_is_an_error(repository: Path) -> None:
    (repository / "docs/how-to/a.md").write_text("[gone](../gone.md)\n")
    with pytest.raises(LookupError, match=r"links to docs/gone\.md"):
        list(stage.Site(repository).pages())


def test_code_is_left_as_it_is(repository: Path) -> None:
    text = "```text\n[a](b.md)\n| `x \\| y` |\n```\n"
    (repository / "docs/how-to/a.md").write_text(text)
    pages = {str(target): text for target, text in stage.Site(repository).pages()}
    assert pages["how-to/a.md"] == text


def test_bars_and_items_are_written_as_the_site_reads_them() -> None:
    text = "- one\n\n  | a |\n  | - |\n\n| `x \\| y` | b \\| c |\n"
    assert stage.python_markdown(text) == (
        "- one\n\n    | a |\n    | - |\n\n| `x | y` | b \\| c |\n"
    )


def test_code_in_an_item_is_of_the_item() -> None:
    text = "1. one\n\n   ```sh\n   a\n     b\n   ```\n\n   and\n2. two\n"
    found = stage.outside_of_code(text, stage.python_markdown)
    assert found == (
        "1. one\n\n    ```sh\n    a\n      b\n    ```\n\n    and\n\n2. two\n"
    )


def test_the_menu_has_each_page_of_the_index() -> None:
    site = stage.Site()
    written = stage.toml(stage.navigation(site))
    missing = [
        str(path)
        for path, target in site.places.items()
        if f'"{target}"' not in written
    ]
    assert not missing


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("README.md", "index.md"),
        ("docs/README.md", "contents.md"),
        ("docs/reference/eps/cpu.md", "reference/eps/cpu.md"),
        ("plugins/cpu/README.md", "plugins/cpu.md"),
        ("core/README.md", "core.md"),
        ("CHANGELOG.md", "changelog.md"),
    ],
)
def test_a_page_has_a_place(path: str, place: str) -> None:
    assert str(stage.place(PurePosixPath(path))) == place


def built(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "sitemap.xml").write_text(text)
    return folder


def test_the_newest_release_is_the_latest(tmp_path: Path) -> None:
    site = tmp_path / "site"
    versions.add(built(tmp_path / "a", "a"), site, "development")
    assert "url=development/index.html" in (site / "index.html").read_text()
    for version in ("0.9", "0.10"):
        versions.add(built(tmp_path / version, version), site, version)
    versions.add(built(tmp_path / "b", "b"), site, "development")
    listed = json.loads((site / "versions.json").read_text())
    assert [each["version"] for each in listed] == ["development", "0.10", "0.9"]
    assert [each["aliases"] for each in listed] == [[], ["latest"], []]
    assert "url=0.10/index.html" in (site / "index.html").read_text()
    assert (site / "development/sitemap.xml").read_text() == "b"


def test_a_version_is_a_number_or_not_released(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected 'development' or numbers"):
        versions.add(tmp_path / "a", tmp_path / "site", "../up")
