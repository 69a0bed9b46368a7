"""The page that the conformance kit writes, as Chromium shows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from onnxplug_testing.conformance import CheckOutcome, Finding, Report, Sentence
from onnxplug_testing.conformance.html import as_html

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDE, NARROW = (1280, 900), (390, 844)
CONTRAST = Path(__file__).with_name("hard_to_read.js").read_text("utf-8")
TOO_WIDE = Path(__file__).with_name("too_wide.js").read_text("utf-8")

SENTENCE = Sentence(
    "CompiledPartition.run",
    "One array per output, of the element type and shape that the operators give",
)
TEXTS = ", ".join(
    f"body {name}"
    for name in "p li td th dt dd code a strong span cite blockquote h1 h2 h3".split()
)

LONG = "a" * 300
"""What nothing breaks into lines, such as a path or a list without spaces."""

FOCUSED = "(e => e.getAttribute('href') || e.role)(document.activeElement)"

Opened = Callable[..., "Page"]


def finding(number: int, **changes: Any) -> Finding:
    """One with all that there may be, some of it long."""
    facts: dict[str, Any] = {
        "node": f"Gemm-13 (beta=0.5, name={LONG})",
        "types": {"x": "float32", f"input_{LONG}": "bfloat16"},
        "shapes": {"x": (1, 0, 3), f"input_{LONG}": tuple(range(40))},
        "case": f"test_gemm_{number} (dtype), opset 13",
        "file": f"/tmp/{LONG}/operators-nodes-{number}",
        "times": number,
    }
    what = f'<b>is wrong</b> & "more": {LONG}'
    return Finding("operators", "nodes", SENTENCE, what, **(facts | changes))


def outcome(name: str, findings: list[Finding], **figures: float) -> CheckOutcome:
    """What came of a check."""
    untried = {"the EP refuses the node": 12_345, f"of {LONG}": 1} if findings else {}
    doc = "Single nodes: ONNX's own cases, other element types, versions."
    return CheckOutcome(
        "operators", name, doc, 123_456, untried, findings, figures, 1.5, 1.25
    )


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a report in which something was found."""
    checks = [
        outcome("none", []),
        outcome("nodes", [finding(1), finding(2), finding(3, types={}, file="")]),
        outcome("networks", [finding(4)], **{"a run of 1 node, µs": 12.3456}),
    ]
    versions = {"onnxplug": "0.1.0", "SPI": "1.0", "numpy": "2.4.0"}
    report = Report(
        "AcmeExecutionProvider", "1.0", "CPU", versions, 0, False, checks, ["costs"], 9
    )
    path = tmp_path_factory.mktemp("kit") / "report.html"
    path.write_text(as_html(report), "utf-8")
    return path.as_uri()


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read(opened: Opened, page_of: str, scheme: str, size: Any) -> None:
    page = opened(page_of, size, scheme)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") is (scheme == "light")
    assert page.evaluate(CONTRAST, TEXTS) == []
    assert page.evaluate(TOO_WIDE, "body *") == []
    wide = "(e => e.scrollWidth - e.clientWidth)(document.documentElement)"
    assert page.evaluate(wide) == 0
    # what an EP says is text, and nothing of the page
    assert page.locator("article b").count() == 0
    assert "<b>is wrong</b>" in page.locator("article p").first.inner_text()


def test_it_is_gone_through_without_a_mouse(opened: Opened, page_of: str) -> None:
    page = opened(page_of, NARROW)
    focused = []
    for _ in range(7):
        page.keyboard.press("Tab")
        focused.append(
            page.evaluate(
                "(e => e.getAttribute('href') || e.role)(document.activeElement)"
            )
        )
    assert focused == [
        "#found", "#tried", "#measured", "region", "#finding-1", "#finding-4", "region",
    ]  # fmt: skip
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    table = page.locator(".wide").first
    table.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(300)
    assert table.evaluate("e => e.scrollLeft") > 0
    page.locator("a[href='#finding-4']").focus()
    page.keyboard.press("Enter")
    heading = page.locator("#finding-4")
    assert heading.inner_text().startswith("4. operators/nodes")
    box = heading.bounding_box()
    assert box is not None and -1 < box["y"] < NARROW[1] / 2


def test_it_is_said_to_those_who_hear_it(opened: Opened, page_of: str) -> None:
    page = opened(page_of)
    expected: dict[Any, list[str]] = {
        "navigation": ["On this page"],
        "heading": ["What was found", "What was tried", "What was measured"],
        "region": ["What was tried", "What was measured"],
        "article": ["1. operators/nodes", "4. operators/nodes"],
        "rowheader": ["operators/networks"],
        "columnheader": ["tried", "not tried", "findings", "why not"],
    }
    for role, names in expected.items():
        for name in names:
            assert page.get_by_role(role, name=name).count() > 0, (role, name)
