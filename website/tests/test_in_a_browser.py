"""The pages as Chromium shows them: light, dark, wide, narrow, served, and as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDE, NARROW = (1280, 900), (390, 844)

SHOWN = (
    "index", "contents", "changelog", "reference/spi", "reference/full/spi",
    "how-to/choose-devices", "explanation/performance", "tutorials/write-an-ep",
    "source/plugins/native/tools/run_suite-py",
)  # fmt: skip
"""Pages with all that there is: tables, code, long words, pictures, docstrings."""

CONTRAST = Path(__file__).with_name("hard_to_read.js").read_text("utf-8")
TOO_WIDE = Path(__file__).with_name("too_wide.js").read_text("utf-8")

Opened = Callable[..., "Page"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", SHOWN)
def test_text_can_be_read(opened: Opened, address: str, name: str, scheme: str) -> None:
    page = opened(f"{address}/{name}.html", WIDE, scheme)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") is (scheme == "light")
    assert page.evaluate(CONTRAST) == []


def test_no_page_is_wider_than_a_telephone(
    opened: Opened, address: str, site: Path
) -> None:
    page = opened(f"{address}/index.html", NARROW)
    found = {}
    for path in sorted(site.rglob("*.html")):
        page.goto(f"{address}/{path.relative_to(site).as_posix()}")
        wide = page.evaluate(
            "(e => e.scrollWidth - e.clientWidth)(document.documentElement)"
        )
        if wide > 0 or (out := page.evaluate(TOO_WIDE)):
            found[path.name] = wide or out
    assert not found


@pytest.mark.parametrize("how", ["served", "a file"])
def test_search_finds_a_page_without_a_network(
    opened: Opened, address: str, site: Path, how: str
) -> None:
    root = address if how == "served" else site.as_uri()
    page = opened(f"{root}/how-to/choose-devices.html")
    page.wait_for_timeout(500)
    page.keyboard.press("Control+k")
    page.keyboard.type("cancel a run")
    result = page.locator("a[href*='?h=cancel']").first
    result.wait_for(timeout=20_000)
    assert "how-to/cancel-a-run.html" in (result.get_attribute("href") or "")
    assert "Cancel a run" in result.inner_text()


def test_other_versions_are_offered(opened: Opened, address: str) -> None:
    page = opened(f"{address}/reference/limits.html")
    offered = page.locator(".md-version__link")
    offered.first.wait_for(state="attached", timeout=10_000)
    assert "development" in offered.all_text_contents()


def test_the_first_page_leads_to_a_version(opened: Opened, address: str) -> None:
    page = opened(f"{address.rpartition('/')[0]}/")
    page.wait_for_url("**/index.html")
    assert page.locator("h1").first.inner_text().startswith("onnxplug")


def test_menus_work_without_a_mouse(opened: Opened, address: str) -> None:
    page = opened(f"{address}/index.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent").strip() == (
        "Skip to content"
    )
