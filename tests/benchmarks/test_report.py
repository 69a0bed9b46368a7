"""The page of measurements shows what the stored results say."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
import report

REPORTS = report.read()


def test_there_are_results() -> None:
    assert REPORTS


def test_tables_are_those_of_the_results() -> None:
    text = report.PAGE.read_text(encoding="utf-8")
    shown = text.split(report.BEGIN)[1].split(report.END)[0]
    assert shown.strip() == report.page(REPORTS).strip()


@pytest.mark.parametrize(
    ("found", "threads"),
    [(found, threads) for found in REPORTS for threads in found.threads],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_plot_has_a_bar_for_each_ratio(found: report.Report, threads: str) -> None:
    drawn = report.PAGE.with_name(report.plot_name(found, threads))
    assert drawn.read_text(encoding="utf-8") == report.plot(found, threads)
    svg = ElementTree.parse(drawn).getroot()
    words = [text.text for text in svg.iterfind("{*}text")]
    for name, model in found.threads[threads]["models"].items():
        assert name in words
        for peer in found.peers:
            assert f"{model['ratio']['onnxplug'][peer]:.2f}" in words
    x, width = 0.0, float(svg.attrib["viewBox"].split()[2])
    for box in svg.iterfind("{*}rect"):
        x = float(box.get("x", 0)) + float(box.attrib["width"])
        assert 0 <= x <= width


def test_headlines_of_a_machine_with_amx_have_figures_without_it_beside() -> None:
    for found in REPORTS:
        default = "fp32_matmul" not in found.found["settings"]["onnxplug's options"]
        if found.found["machine"]["amx"] and default:
            assert "onnxplug, fma" in found.ours
            assert re.search(r"geometric mean of onnxplug, fma", report.page([found]))
