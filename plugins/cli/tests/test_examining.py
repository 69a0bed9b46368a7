"""``onnxplug test``: what it asks for, prints and writes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from onnxplug_testing import Knobs, SimulatedFactory


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def absurd(register) -> str:
    """An EP whose nodes take less than no time."""
    seconds = {"Relu": -1.0, "Add": -1.0, "Mul": -1.0}
    return register(SimulatedFactory(Knobs(seconds=seconds)))


def test_what_it_says_of_an_ep_without_mistakes(cli, toy: str, tmp_path: Path) -> None:
    outcome = cli("test", "toy", "--quick", "--only", "costs,factory/facts")
    assert outcome.code == 0
    assert outcome.out.startswith(f"{toy} ")
    assert "costs/of-pairs" in outcome.out
    assert "not tried: 1, as the EP has no cost model" in outcome.out
    assert "not asked for: " in outcome.out
    assert outcome.out.splitlines()[-1].endswith("seed 0)")
    assert not list(tmp_path.iterdir())


def test_findings_in_words_in_json_and_as_a_page(
    cli, absurd: str, tmp_path: Path
) -> None:
    words = ("test", absurd, "--quick", "--only", "costs", "--html", "page.html")
    outcome = cli(*words)
    assert outcome.code == 1
    assert "contract: CostModel.estimate: “finite and not less than 0" in outcome.out
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "finite and not less than 0" in page
    found = cli(*words, "--json", "--folder", "elsewhere")
    assert found.code == 1
    finding, *_ = (f for each in found.json["checks"] for f in each["findings"])
    assert finding["group"] == "costs"
    assert finding["sentence"]["of"] == "CostModel.estimate"
    assert (tmp_path / finding["file"] / "reproduce.py").exists()
    assert finding["file"].startswith("elsewhere/")
    assert (tmp_path / "conformance-simulated").is_dir()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", "cost"), "there is no check 'cost'"),
        (("--device", "7"), "device 7 is out of range"),
        (("--device", "quantum"), "no device of ToyExecutionProvider is 'quantum'"),
    ],
)
def test_what_does_not_fit(cli, toy: str, words: tuple[str, str], said: str) -> None:
    outcome = cli("test", toy, *words)
    assert outcome.code == 2
    assert said in outcome.err


def test_the_kit_is_not_installed(
    cli, toy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxplug_testing.conformance", None)
    monkeypatch.delattr("onnxplug_testing.conformance", raising=False)
    outcome = cli("test", toy)
    assert outcome.code == 1
    assert "`pip install onnxplug-testing`" in outcome.err
