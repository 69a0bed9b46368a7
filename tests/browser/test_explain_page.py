"""The page of ``explain()`` as a person sees it in Chromium."""

from __future__ import annotations

import html
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import onnxplug

pytest.importorskip("playwright", reason="drives Chromium")
pytest.importorskip("fast_sugiyama", reason="lays out the graphs of pages")
pytest.importorskip("torch", reason="exports the models")

from . import models

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from .conftest import Look

OPENVINO = "OpenVINOExecutionProvider"
CPU = "CPUExecutionProvider"

TO_RGB = """element => {
  const canvas = document.createElement("canvas").getContext("2d");
  const style = getComputedStyle(element);
  canvas.fillStyle = element.tagName === "BUTTON" ? style.backgroundColor : style.fill;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
}"""


@pytest.fixture
def control_flow(accelerator: str) -> Iterator[onnxplug.InferenceSession]:
    model = models.with_control_flow()
    with onnxplug.InferenceSession(model, providers=[accelerator, CPU]) as session:
        yield session


def nodes(page: Page) -> list[str]:
    """What is written in the boxes that are shown."""
    return page.locator(".node text:not(.time)").all_text_contents()


def chosen(page: Page) -> str:
    return page.locator("#chosen").inner_text()


def luminance(colour: list[int]) -> float:
    """Of WCAG 2.2, from 0 to 1."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (channel / 255 for channel in colour)
    ]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def contrast(one: list[int], other: list[int]) -> float:
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The models that PyTorch has exported, by name."""
    folder = tmp_path_factory.mktemp("models")
    return {name: models.exported(name, folder) for name in models.SMALL}


@pytest.mark.parametrize("name", models.SMALL)
def test_nodes_of_exported_models_have_the_colours_of_their_eps(
    look: Look, files: dict[str, str], accelerator: str, name: str
) -> None:
    providers = [accelerator, "openvino", CPU]
    with onnxplug.InferenceSession(files[name], providers=providers) as session:
        page = look(session, name)
        explanation = session.explain()
    counts = Counter(node.ep for node in explanation.nodes)
    assert {accelerator, OPENVINO} <= {*counts}
    legend = {
        button.inner_text().split(":")[0]: button.evaluate(TO_RGB)
        for button in page.locator("#eps button").all()
    }
    assert len({tuple(colour) for colour in legend.values()}) == len(legend)
    for ep, count in counts.items():
        assert page.locator("#eps").get_by_text(f"{ep}: {count} nodes").is_visible()
    page.locator("#view").focus()
    for place in range(0, len(explanation.nodes), max(len(explanation.nodes) // 12, 1)):
        node = explanation.nodes[place]
        page.evaluate("node => choose(node)", place)
        box = page.locator(f".node.chosen[data-node='{place}'] rect.box")
        assert box.is_visible()
        assert box.evaluate(TO_RGB) == legend[node.ep]
        assert node.ep in chosen(page)
        assert f"partition {node.partition}" in chosen(page)
    assert page.locator("#headline").inner_text() == explanation.headline
    copies = page.locator("#copies-title").inner_text()
    assert copies == f"Copies in each run ({len(explanation.copies)})"


def test_reasons_types_and_partitions_are_told_on_hover(
    look: Look, control_flow: onnxplug.InferenceSession
) -> None:
    page = look(control_flow, "hover")
    page.locator(".node", has_text="Loop").hover(force=True)
    hover = page.locator("#hover")
    assert hover.is_visible()
    text = hover.inner_text()
    assert "Loop steps" in text
    assert "not on SimulatedExecutionProvider: op: Loop is not among" in text
    assert "makes last: float32" in text
    page.locator(".node", has_text="Mul").first.hover(force=True)
    text = hover.inner_text()
    assert "SimulatedExecutionProvider, partition " in text
    assert "runs wait for each other" in text
    assert "makes s0: float32[4], 16 B" in text
    page.mouse.move(5, 790)
    assert not hover.is_visible()


def test_what_is_copied_is_told_on_hover(
    look: Look, control_flow: onnxplug.InferenceSession
) -> None:
    page = look(control_flow, "edges")
    spot = page.evaluate("""() => {
      const path = document.querySelector("path.edge.copied");
      const at = path.getPointAtLength(path.getTotalLength() * 0.3);
      const {x, y} = new DOMPoint(at.x, at.y).matrixTransform(path.getScreenCTM());
      return [x, y];
    }""")
    page.mouse.move(*spot)
    text = page.locator("#hover").inner_text()
    assert "s0 crosses from " in text
    assert "16 B" in text
    assert "copied in each run" in text


def test_search_finds_and_goes_to_what_it_found(
    look: Look, files: dict[str, str], accelerator: str
) -> None:
    with onnxplug.InferenceSession(
        files["bert"], providers=[accelerator, "openvino"]
    ) as session:
        page = look(session, "search")
        found = [n for n in session.explain().nodes if "Softmax" in n.op_type]
    page.keyboard.press("/")
    page.keyboard.type("softmax")
    assert page.locator("#found").inner_text() == f"{len(found)} nodes"
    page.keyboard.press("Enter")
    assert page.locator("#found").inner_text() == f"1 of {len(found)}"
    first = page.locator(".node.chosen").bounding_box()
    assert first and 0 < first["x"] < 870 and 0 < first["y"] < 800
    assert chosen(page).startswith("Softmax")
    before = chosen(page)
    page.keyboard.press("Enter")
    assert page.locator("#found").inner_text() == f"2 of {len(found)}"
    assert chosen(page) != before
    page.locator("#wanted").fill("no such thing")
    assert page.locator("#found").inner_text() == "0 nodes"
    page.keyboard.press("Escape")
    assert chosen(page) == page.locator("#wanted").input_value() == ""


def test_keys_move_from_node_to_node_and_zoom(
    look: Look, control_flow: onnxplug.InferenceSession
) -> None:
    page = look(control_flow, "keys")
    page.locator("#view").focus()
    page.keyboard.press("ArrowDown")
    assert chosen(page).startswith("Mul start")
    page.keyboard.press("ArrowDown")
    assert chosen(page).startswith(("Loop steps", "If choice"))
    page.keyboard.press("ArrowUp")
    assert chosen(page).startswith("Mul start")
    page.locator("#chosen a").first.click()
    assert not chosen(page).startswith("Mul start")
    size = "() => document.querySelector('.node rect').getBoundingClientRect().width"
    page.locator("#view").focus()
    before = page.evaluate(size)
    page.keyboard.press("-")
    page.wait_for_timeout(100)
    assert page.evaluate(size) == pytest.approx(before * 0.8, rel=0.01)
    page.keyboard.press("0")
    page.wait_for_timeout(100)
    assert page.evaluate(size) >= before
    page.keyboard.press("Escape")
    assert chosen(page) == ""


def test_the_pointer_pans_and_the_wheel_zooms_where_it_is(
    look: Look, control_flow: onnxplug.InferenceSession
) -> None:
    page = look(control_flow, "pan")
    node = page.locator(".node").first
    before = node.bounding_box()
    assert before is not None
    page.mouse.move(60, 600)
    page.mouse.down()
    page.mouse.move(100, 560, steps=4)
    page.mouse.up()
    page.wait_for_timeout(100)
    after = node.bounding_box()
    assert after is not None
    moved = after["x"] - before["x"], after["y"] - before["y"]
    assert moved == pytest.approx((40, -40), abs=1.5)
    middle = after["x"] + after["width"] / 2, after["y"] + after["height"] / 2
    page.mouse.move(*middle)
    page.mouse.wheel(0, -200)
    page.wait_for_timeout(200)
    zoomed = node.bounding_box()
    assert zoomed is not None
    assert zoomed["width"] > after["width"] * 1.3
    assert zoomed["x"] + zoomed["width"] / 2 == pytest.approx(middle[0], abs=2)


def test_bodies_unfold_where_they_are(
    look: Look, control_flow: onnxplug.InferenceSession
) -> None:
    page = look(control_flow, "bodies")
    assert sorted(nodes(page)) == ["Mul", "Mul", "▸ If", "▸ Loop"]
    page.locator("#view").focus()
    page.keyboard.press("ArrowDown")
    while not chosen(page).startswith("Loop"):
        page.keyboard.press("ArrowDown" if "start" in chosen(page) else "ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_timeout(100)
    assert {"▾ Loop", "Identity", "Sqrt", "Add"} <= {*nodes(page)}
    (box,) = [each.bounding_box() for each in page.locator(".body > rect").all()]
    loop = page.locator(".node", has_text="Loop").bounding_box()
    inner = page.locator(".node", has_text="Sqrt").first.bounding_box()
    place = [node.name for node in control_flow.explain().nodes].index("end")
    end = page.locator(f".node[data-node='{place}']").bounding_box()
    assert box and loop and inner and end
    assert loop["y"] + loop["height"] <= box["y"] < inner["y"]
    assert inner["y"] + inner["height"] < box["y"] + box["height"] <= end["y"] + 1
    # what is found in a body that is folded unfolds it
    assert "Tanh" not in nodes(page)
    page.locator("#wanted").fill("deep")
    page.keyboard.press("Enter")
    assert "Tanh" in nodes(page)
    assert chosen(page).startswith("Tanh deep")
    page.locator("#unfold").click()
    assert page.locator(".body").count() == 5
    page.locator("#unfold").click()
    page.wait_for_timeout(100)
    assert sorted(nodes(page)) == ["Mul", "Mul", "▸ If", "▸ Loop"]
    page.locator(".node", has_text="If").dblclick(force=True)
    page.wait_for_timeout(100)
    assert page.locator(".body > text").all_text_contents() == [
        "then_branch",
        "else_branch",
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_the_light_and_in_the_dark(
    look: Look, control_flow: onnxplug.InferenceSession, scheme: str
) -> None:
    page = look(control_flow, scheme, scheme=scheme)
    ground = page.evaluate(
        f"({TO_RGB.replace('style.fill', 'style.backgroundColor')})(document.body)"
    )
    assert (luminance(ground) < 0.1) == (scheme == "dark")
    texts = page.locator(".node").all()
    assert texts
    for node in texts:
        box = node.locator("rect.box").evaluate(TO_RGB)
        ink = node.locator("text").first.evaluate(TO_RGB)
        assert contrast(box, ink) >= 4.5
        assert contrast(box, ground) > 1.05


def test_times_are_in_the_boxes(look: Look, pages: Path) -> None:
    options = onnxplug.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(pages / "trace")
    with onnxplug.InferenceSession(
        models.of_nodes(60), options, providers=[CPU]
    ) as session:
        feeds = {name: np.ones((4, 4), np.float32) for name in ("x", "mask")}
        for _ in range(4):
            session.run(None, feeds)
        page = look(session, "times", trace=session.end_profiling())
    assert page.locator("#times").inner_text().startswith("a run takes ")
    assert page.locator(".node .time").count() > 10
    assert all(text.endswith("s") for text in page.locator(".time").all_text_contents())
    assert page.locator(".node .share").count() > 10
    assert " a run" in page.locator("#parts").inner_text()


def test_five_thousand_nodes_do_not_lag(look: Look, accelerator: str) -> None:
    """In time of processors, as machines of tests do other things, too."""
    with onnxplug.InferenceSession(
        models.of_nodes(5000), providers=[accelerator, CPU]
    ) as session:
        before = time.thread_time()
        explanation = session.explain()
        explained = time.thread_time() - before
        assert len(explanation.nodes) >= 5000
        text = explanation.to_html("5000")
        written = time.thread_time() - before - explained
        page = look(session, "5000")
    assert explained < 2
    assert written < 20
    assert len(text) < 5_000_000
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def taken(script: str) -> float:
        """Of the page's main thread, for each of 30 frames, in ms."""
        start = busy()
        page.evaluate(f"""async () => {{
          for (let i = 0; i < 30; i++) {{
            {script};
            await new Promise(done => requestAnimationFrame(done));
          }}
        }}""")
        return (busy() - start) / 30 * 1e3

    def busy() -> float:
        metrics: list[Any] = devtools.send("Performance.getMetrics")["metrics"]
        return next(float(m["value"]) for m in metrics if m["name"] == "TaskDuration")

    assert taken("state.y -= 60; redraw()") < 16
    assert taken("zoom(i < 15 ? 0.7 : 1.4)") < 16
    page.locator("#fit").click()
    page.wait_for_timeout(100)
    # from afar there are no boxes, and still something to see
    assert page.locator(".node").count() == 0
    assert page.locator("path.coarse").count() > 1
    page.locator("#wanted").fill("Softmax_")
    page.keyboard.press("Enter")
    assert page.locator(".node.chosen").is_visible()


def test_a_notebook_shows_it_in_a_frame(
    browser: Any, control_flow: onnxplug.InferenceSession, pages: Path
) -> None:
    path = pages / "notebook.html"
    path.write_text(
        f"<!doctype html><p>{html.escape('cell')}</p>"
        + control_flow.explain()._repr_html_(),
        encoding="utf-8",
    )
    page = browser.new_page()
    page.goto(path.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator(".node", has_text="Loop").wait_for()
    assert "partitions" in frame.locator("#headline").inner_text()
    page.close()


def test_a_narrow_window_has_all_of_it(
    look: Look, control_flow: onnxplug.InferenceSession
) -> None:
    page = look(control_flow, "narrow")
    page.set_viewport_size({"width": 420, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    view = page.locator("#view").bounding_box()
    aside = page.locator("aside").bounding_box()
    assert view and aside
    assert aside["y"] >= view["y"] + view["height"] - 1
    assert view["height"] > 200
