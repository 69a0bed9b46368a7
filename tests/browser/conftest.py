"""Pages of real models, and a browser that shows them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

import onnxplug
from onnxplug.plugins import registry
from onnxplug_testing import Knobs, SimulatedFactory

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # has the zoo

Look: TypeAlias = "Callable[..., Page]"

ON_DEVICE = frozenset({"Conv", "MatMul", "Gemm", "Mul", "Add", "Concat"})


@pytest.fixture(scope="session")
def accelerator() -> Iterator[str]:
    """The simulated device, with some operators; its EP's name."""
    factory = SimulatedFactory(Knobs(ops=ON_DEVICE))
    registry.add(factory)
    yield factory.name
    registry.remove(factory.name)


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pages are written."""
    return tmp_path_factory.mktemp("pages")


@pytest.fixture
def look(browser: Browser, pages: Path) -> Iterator[Look]:
    """Opens the page of a session as Chromium shows it: ``look(session, name)``.

    No page may have an error, or ask anybody for anything.
    """
    opened: list[Page] = []
    wrong: list[str] = []

    def show(
        session: onnxplug.InferenceSession,
        name: str,
        *,
        scheme: str = "light",
        trace: str | None = None,
    ) -> Page:
        path = pages / f"{name}.html"
        path.write_text(session.explain().to_html(name, trace), encoding="utf-8")
        page = browser.new_page(
            viewport={"width": 1200, "height": 800}, color_scheme=scheme
        )
        opened.append(page)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text))
        page.on(
            "request",
            lambda request: (
                request.url.startswith("file:") or wrong.append(request.url)
            ),
        )
        page.goto(path.as_uri())
        page.wait_for_selector("#world g")
        return page

    yield show
    for page in opened:
        page.close()
    assert not wrong
