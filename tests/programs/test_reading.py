"""RapidOCR, in its old and its new distribution: detector, classifier, recogniser."""

from __future__ import annotations

import pytest

from .conftest import SameOnBoth

# the page is read as it is, and turned upside down, which the classifier notices
PAGES = """
from PIL import Image, ImageDraw, ImageFont

page = Image.new("RGB", (640, 260), "white")
draw = ImageDraw.Draw(page)
font = ImageFont.load_default(size=36)
lines = ("Hello World 2026", "onnxplug reads text", "Total: 1,234.56 EUR")
for i, line in enumerate(lines):
    draw.text((40, 30 + 70 * i), line, "black", font)
pages = {"upright": np.asarray(page), "turned": np.asarray(page.rotate(180))}
"""
OLD = """
from rapidocr_onnxruntime import RapidOCR

engine = RapidOCR()
for name, page in pages.items():
    lines, _ = engine(page, use_cls=True)
    boxes, texts, scores = zip(*lines)
    results[f"{name} texts"] = np.array(texts)
    results[f"{name} boxes"] = np.array(boxes)
    results[f"{name} scores"] = np.array(scores)
"""
NEW = """
from rapidocr import RapidOCR

engine = RapidOCR()
for name, page in pages.items():
    output = engine(page, use_cls=True)
    results[f"{name} texts"] = np.array(output.txts)
    results[f"{name} boxes"] = output.boxes
    results[f"{name} scores"] = np.array(output.scores)
"""


@pytest.mark.parametrize(
    ("package", "program"), [("rapidocr_onnxruntime", OLD), ("rapidocr", NEW)]
)
def test_rapidocr_reads_the_same(
    same_on_both: SameOnBoth, package: str, program: str
) -> None:
    """A box is of whole pixels, where a score of the detector passes a threshold."""
    results = same_on_both(
        package,
        PAGES + program,
        {
            f"{name} {what}": tolerance
            for name in ("upright", "turned")
            for what, tolerance in {"boxes": 1, "scores": 1e-3}.items()
        },
    )
    read = [text.replace(" ", "") for text in results["upright texts"]]
    assert read == ["HelloWorld2026", "onnxplugreadstext", "Total:1,234.56EUR"]
    assert "Total: 1,234.56 EUR" in results["turned texts"]
