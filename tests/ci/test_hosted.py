"""Hosted CI, which never ran, calls what there is, and nothing but that."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))

SETS_UP = {"choco install make --yes --no-progress"}
"""What runners need before a command of ours can be called."""

MATRIX = re.compile(r"\$\{\{ matrix\.(\w+) \}\}")


def jobs() -> list[tuple[str, dict]]:
    """Each job, with its name."""
    return [
        (f"{path.stem}: {name}", job)
        for path in WORKFLOWS
        for name, job in yaml.safe_load(path.read_text("utf-8"))["jobs"].items()
    ]


def commands(job: dict) -> Iterator[str]:
    """The lines that a job runs, for each entry of its matrix."""
    matrix = job.get("strategy", {}).get("matrix", {})
    for step in job["steps"]:
        for line in step.get("run", "").splitlines():
            names = MATRIX.findall(line)
            assert len(names) <= 1, line
            for value in matrix[names[0]] if names else [""]:
                yield MATRIX.sub(value, line).strip()


EVERY = pytest.mark.parametrize(
    ("name", "job"), jobs(), ids=lambda each: str(each)[:30]
)


def targets() -> set[str]:
    text = (ROOT / "Makefile").read_text("utf-8")
    phony = re.search(r"^\.PHONY: (.*?)(?<!\\)$", text, re.M | re.S)
    assert phony is not None
    return set(phony[1].replace("\\", "").split())


def names_of_eps(plugin: str) -> list[str]:
    project = ROOT / "plugins" / plugin / "pyproject.toml"
    points = tomllib.loads(project.read_text("utf-8"))["project"]["entry-points"]
    return [
        name.removesuffix("ExecutionProvider").lower()
        for name in points["onnxplug.execution_providers"]
    ]


@EVERY
def test_a_job_calls_what_people_do(name: str, job: dict) -> None:
    readme = (ROOT / "README.md").read_text("utf-8").splitlines()
    called = [line for line in commands(job) if line not in SETS_UP]
    assert called
    for line in called:
        words = shlex.split(line)
        if words[0] != "make":
            assert line in readme, f"{line}: no make target, and not in README.md"
            continue
        given = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        (target,) = (word for word in words[1:] if "=" not in word)
        assert target in targets(), line
        assert given.keys() <= {"PYTHON", "PLUGIN", "EP"}, line
        if target == "test-device":
            plugin = given["PLUGIN"]
            assert given.get("EP", plugin) in names_of_eps(plugin), line


@EVERY
def test_a_job_may_do_nothing_but_read(name: str, job: dict) -> None:
    assert "permissions" not in job
    assert job["timeout-minutes"] <= 90
    for step in job["steps"]:
        if "uses" in step:
            assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", step["uses"])
        if "checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_each_system_is_there_and_said_to_have_never_run() -> None:
    systems = {job["runs-on"].split("-")[0] for _, job in jobs()}
    assert systems == {"windows", "macos", "ubuntu"}
    for path in WORKFLOWS:
        text = path.read_text("utf-8")
        assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
        assert "NEVER RUN" in text.partition("\nname:")[0]


def test_the_machines_own_ci_calls_targets() -> None:
    text = (ROOT / ".ci" / "run").read_text("utf-8")
    called = re.findall(r"\b(?:test|lint|site)(?:-[a-z0-9]+)*\b", text)
    wanted = {each for each in called if each in targets() or "-" in each}
    assert {"lint", "test", "test-site"} <= wanted <= targets()
