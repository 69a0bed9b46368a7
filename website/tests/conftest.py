"""The site that ``make site`` has built, as files and served."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT: Final = Path(__file__).parents[2]

BUILT: Final = ROOT / "build" / "site"


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the site of what is not released."""
    folder = BUILT / "development"
    assert folder.exists(), "the site is not built; run make site"
    return folder


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page: ``opened(address, size, scheme)``.

    Afterwards no script may have failed, and nothing been asked for elsewhere.
    """
    asked: list[str] = []
    failed: list[str] = []
    contexts = []

    def open_page(url: str, size: Any = (1280, 900), scheme: Any = "light") -> Page:
        context = browser.new_context(
            color_scheme=scheme, viewport={"width": size[0], "height": size[1]}
        )
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: failed.append(str(error)))
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not failed
    here = ("file:", "data:", "blob:", "http://127.0.0.1:")
    assert not [url for url in asked if not url.startswith(here)]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Where the site is served, without the slash at its end."""
    handler = functools.partial(_Quiet, directory=str(site.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/{site.name}"
        server.shutdown()
