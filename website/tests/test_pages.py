"""The pages as they are built: complete, as on a code host, and self-contained."""

from __future__ import annotations

import re
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath

import pytest
from markdown_it import MarkdownIt

from onnxplug import ep

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "website"))

import stage  # noqa: E402

SITE = stage.Site()

MEANS = [
    "h1", "h2", "h3", "h4", "li", "ul", "ol", "table", "tr", "td", "pre", "strong",
    "em", "blockquote", "img", "hr",
]  # fmt: skip
"""What a page has as many of, wherever it is shown; no paragraphs, as an item of a list
is one in some dialects."""

FETCHING = {
    "script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href",
}  # fmt: skip
"""The elements for which a browser fetches something, and where they name it."""


class Elements(HTMLParser):
    """How often each element occurs, and what is fetched for them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.fetched: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] += 1
        if tag in FETCHING:
            self.fetched.append(dict(attrs).get(FETCHING[tag]) or "")


def article(site: Path, page: PurePosixPath) -> str:
    html = (site / page.with_suffix(".html")).read_text("utf-8")
    return html.partition("<article")[2].partition("</article>")[0]


@pytest.mark.parametrize("page", SITE.places, ids=str)
def test_a_page_is_what_it_is_on_a_code_host(site: Path, page: PurePosixPath) -> None:
    source = (ROOT / page).read_text("utf-8")
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    there = Elements(markdown.render(source)).counts
    here = Elements(article(site, SITE.places[page])).counts
    assert {tag: here[tag] for tag in MEANS} == {tag: there[tag] for tag in MEANS}


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > len(SITE.places)
    foreign = {
        target
        for page in pages
        for target in Elements(page.read_text("utf-8")).fetched
        if re.match(r"(https?:)?//", target)
    }
    assert not foreign


def test_no_style_fetches_anything(site: Path) -> None:
    for path in site.rglob("*.css"):
        assert not re.search(
            r"(@import\s|url\()\s*['\"]?(https?:)?//", path.read_text("utf-8")
        ), path


def test_every_name_of_the_interface_has_its_docstring(site: Path) -> None:
    pages = "".join(
        path.read_text("utf-8") for path in (site / stage.FULL).glob("*.html")
    )
    missing = [name for name in ep.__all__ if f'id="onnxplug.ep.{name}"' not in pages]
    assert not missing
    assert "Raises:" in pages
    assert ":class:" not in pages and ":meth:" not in pages


def test_what_pages_link_to_is_on_the_site(site: Path) -> None:
    """Zensical has looked at links of pages; these are those to files that are none."""
    list(SITE.pages())
    assert {PurePosixPath("LICENSE"), PurePosixPath("plugins")} <= SITE.shown.keys()
    for target in SITE.shown.values():
        assert (site / target.with_suffix(".html")).exists()
    for picture in SITE.pictures.values():
        assert (site / picture).exists()
