"""The page of measurements shows what the stored results say."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
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
    ("page", "written", "folder"),
    [
        (report.TORCH_PAGE, report.beside_torch, "torch"),
        (report.WEBGPU_PAGE, report.on_webgpu, "webgpu"),
    ],
)
def test_pages_of_eps_have_the_tables_of_their_results(
    page: Path, written: Callable[..., str], folder: str
) -> None:
    shown = page.read_text(encoding="utf-8").split(report.BEGIN)[1]
    reports = report.read(report.RESULTS / folder)
    assert reports
    assert shown.split(report.END)[0].strip() == written(reports).strip()


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
        ratios = model["ratio"]["onnxplug"]  # of the peers that take the model
        assert ratios
        for ratio in ratios.values():
            assert ratio is None or f"{ratio:.2f}" in words
    x, width = 0.0, float(svg.attrib["viewBox"].split()[2])
    for box in svg.iterfind("{*}rect"):
        x = float(box.get("x", 0)) + float(box.attrib["width"])
        assert 0 <= x <= width


def test_figures_without_amx_stand_beside_those_with_it() -> None:
    default, fma, peer = "onnxplug", "onnxplug, fma", "onnxruntime"
    start = {"start": 1.5, "peak memory": 2**27}
    model = {
        "seconds": {default: 2e-3, fma: 3e-3, peer: 6e-3},
        "ratio": {default: {fma: 1.5, peer: 3.0}, fma: {default: 0.67, peer: 2.0}},
        "error": {
            default: {"largest": 3e-6, "rms": 3e-7},
            fma: {"largest": 3e-6, "rms": 3e-7},
            peer: {"largest": 1e-6, "rms": 2e-7},
        },
        "start": {f"{default}, cold": start, default: start, peer: start},
    }
    failed = {"seconds": {peer: 1e-4}, "ratio": {}}
    versions = {peer: "1.2"}
    found = report.Report(
        "some",
        {
            "machine": {
                "processor": "A processor",
                "amx": True,
                "cores": 2,
                "load": [0.1],
                "python": "3.11",
                "versions": versions,
                "commit": "abc",
            },
            "settings": {
                "runtimes": [default, fma, peer],
                "peers": [peer],
                "repeats": 3,
                "seconds per runtime and repeat": 6.0,
                "clock": "wall",
                "onnxplug's options": {},
            },
            "work": {
                "net": {"flops": 10**8, "nbytes": 10**6},
                "failing": {"flops": 0, "nbytes": 10**6},
            },
            "threads": {
                "1": {
                    "peaks": {"GFLOP/s": 100.0, "GB/s": 10.0},
                    "models": {"net": model, "failing": failed},
                    "geometric means": {
                        "models of 1 ms and more": {
                            default: {fma: 1.5, peer: 3.0, "the better one": 3.0},
                            fma: {default: 0.67, peer: 2.0, "the better one": 2.0},
                        }
                    },
                }
            },
        },
    )
    lines = report.page([found]).splitlines()
    assert "| net | 2 ms | 3 ms | 6 ms | 3.00× | 2.00× | 3.0e-06 | 1.50× |" in lines
    assert "| failing | – | – | 100 µs | – | – | – | – |" in lines
    assert "| net | 0.1 | 1 | 1 ms | arithmetic | 33% |" in lines
    assert "| net | 1.50, 128 | – | 1.50, 128 | – | 1.50, 128 |" in lines
    mean = (
        "- geometric mean of onnxplug, fma, models of 1 ms and more: ONNX Runtime 2.00×"
    )
    assert f"{mean}, the better one 2.00×" in lines
    for line, following in itertools.pairwise(lines):
        if line.startswith("|") and following.startswith("|"):
            assert line.count("|") == following.count("|")
    assert report.plot(found, "1").count("3.00<") == 1
