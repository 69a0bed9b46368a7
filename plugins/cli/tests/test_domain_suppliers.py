"""``onnxplug eps`` and ``onnxplug doctor`` of distributions that supply domains."""

from __future__ import annotations

from typing import Any

import pytest

MINE, YOURS = "org.mine", "org.yours"


@pytest.fixture
def installed(site, monkeypatch) -> None:
    """One domain that works, one that cannot be loaded, and one that is blocked."""
    site.install("XExecutionProvider")
    site.install_domain(MINE, "mine-operators", operators="'Twice', 'Half'")
    site.install_domain(YOURS, "acme-broken", code="import no_such_module")
    site.install_domain(YOURS, "acme-kept-out")
    monkeypatch.setenv("ONNXPLUG_BLOCK", "acme-kept-out")


def of_site(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The domains that the test installed, by distribution."""
    return {
        each["distribution"]: each
        for each in found
        if each.get("name", each.get("domain")) in (MINE, YOURS)
    }


def table(text: str, first: str) -> list[list[str]]:
    """The cells of the table that begins with the column *first*."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"{first} "))
    rows = lines[start + 1 :]
    end = rows.index("") if "" in rows else len(rows)
    return [row.split() for row in rows[:end]]


@pytest.mark.usefixtures("installed")
def test_eps_lists_domains_without_loading_them(cli) -> None:
    found = of_site(cli("eps", "--json").json["domains"])
    assert found["mine-operators"] == {
        "name": MINE,
        "distribution": "mine-operators",
        "version": "1.2",
        "state": "found",
        "reason": "",
    }
    assert found["acme-broken"]["state"] == "found"
    assert found["acme-kept-out"]["state"] == "blocked"
    outcome = cli("eps")
    rows = table(outcome.out, "DOMAIN")
    assert [MINE, "found", "mine-operators", "1.2"] in rows
    assert [YOURS, "blocked", "acme-kept-out", "1.2"] in rows
    assert (
        f"\ndomain '{YOURS}' of acme-kept-out 1.2: it is blocked: "
        "ONNXPLUG_BLOCK has it; take it out there to use it\n"
    ) in outcome.out


@pytest.mark.usefixtures("installed")
def test_eps_loads_them_when_asked(cli) -> None:
    found = of_site(cli("eps", "--load", "--json").json["domains"])
    assert {name: each["state"] for name, each in found.items()} == {
        "mine-operators": "ready",
        "acme-broken": "failed",
        "acme-kept-out": "blocked",
    }
    assert "No module named 'no_such_module'" in found["acme-broken"]["reason"]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("options", [[], ["--isolate"]])
def test_the_doctor_loads_each(cli, options: list[str]) -> None:
    outcome = cli("doctor", "--json", *options)
    found = of_site(outcome.json["domains"])
    mine = found["mine-operators"]
    assert mine.pop("load_ms") > 0
    assert mine == {
        "domain": MINE,
        "distribution": "mine-operators",
        "version": "1.2",
        "state": "ready",
        "reason": "",
        "remedy": "",
        "operators": ["Half", "Twice"],
    }
    broken = found["acme-broken"]
    assert broken["state"] == "failed"
    assert "No module named 'no_such_module'" in broken["reason"]
    assert broken["remedy"] == "tell the makers of acme-broken"
    kept_out = found["acme-kept-out"]
    assert (kept_out["state"], kept_out["load_ms"]) == ("blocked", None)
    assert kept_out["reason"] == "ONNXPLUG_BLOCK has it"
    assert kept_out["remedy"] == "take it out there to use it"
    assert outcome.code == 1
    assert outcome.json["problems"] == [f"{YOURS} of acme-broken: failed"]


@pytest.mark.usefixtures("installed")
def test_the_doctor_shows_them_to_people(cli) -> None:
    out = cli("doctor").out
    (mine,) = (row for row in table(out, "DOMAIN") if row[0] == MINE)
    assert (mine[1], mine[2], mine[-1]) == ("ready", "mine-operators", "2")
    assert f"\n{YOURS} of acme-kept-out\n  blocked: ONNXPLUG_BLOCK has it\n" in out
    assert f"  {YOURS} of acme-broken: failed\n" in out


def test_operators_of_two_suppliers_are_a_problem(cli, site) -> None:
    site.install("XExecutionProvider")
    site.install_domain(MINE, "acme-one", operators="'Twice', 'Half', 'Own'")
    site.install_domain(MINE, "acme-two", operators="'Twice', 'Half'")
    outcome = cli("doctor", "--json")
    assert outcome.code == 1
    assert outcome.json["problems"] == [
        f"{MINE}: acme-one and acme-two both supply Half, Twice, so neither is used; "
        "keep one"
    ]


@pytest.mark.parametrize(
    ("code", "state", "reason"),
    [
        ("import os; os._exit(3)", "crashed", "it ended the process with exit code 3"),
        ("import time; time.sleep(60)", "timed out", "it took more than 3 s"),
    ],
)
def test_one_that_ends_or_stops_its_process(
    cli, site, monkeypatch, code: str, state: str, reason: str
) -> None:
    site.install("XExecutionProvider")
    site.install_domain(MINE, "acme-broken", code=code)
    monkeypatch.setenv("ONNXPLUG_PLUGINS", "x,acme-broken")
    outcome = cli("doctor", "--json", "--timeout", "3")
    found = of_site(outcome.json["domains"])["acme-broken"]
    assert found["state"] == state
    assert found["reason"].startswith(f"{reason} while being loaded")
    assert found["remedy"] == (
        f"tell the makers of acme-broken; ONNXPLUG_BLOCK={MINE} leaves it out"
    )
    assert outcome.json["problems"] == [f"{MINE} of acme-broken: {state}"]
