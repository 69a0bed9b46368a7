"""Names that hold commands for a terminal: no command of ours passes them on."""

from __future__ import annotations

import ast
import io
import re
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxplug
import onnxplug_cli
from onnxplug import ep
from onnxplug_cli.main import main
from onnxplug_testing import ToyFactory

EVIL = "\x1b[31m\r\x9b2J\u202e\u2028\x00\x07\nforged"
FILE = EVIL.replace("\x00", "")  # which no file and no argument can have
HARMFUL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)


def value(name: str, shape: list[str | int] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def save(path: Path, last: str = "Relu", domain: str = "") -> Path:
    """A model whose every name is evil, and of which the toy EP runs two nodes."""
    x, y = f"x{EVIL}", f"y{EVIL}"
    nodes = [
        helper.make_node("Relu", [x], ["a" + EVIL], f"first{EVIL}", doc_string=EVIL),
        helper.make_node("Relu", ["a" + EVIL], ["b" + EVIL]),
        helper.make_node(last, ["b" + EVIL], [y], f"last{EVIL}", domain=domain),
    ]
    graph = helper.make_graph(
        nodes,
        f"g{EVIL}",
        [value(x, [f"d{EVIL}", 3])],
        [value(y, [f"e{EVIL}", 3])],
        doc_string=EVIL,
        value_info=[value("b" + EVIL, [f"d{EVIL}", 3])],
    )
    opsets = [helper.make_opsetid("", 18)]
    opsets += [helper.make_opsetid(domain, 1)] if domain else []
    model = helper.make_model(graph, ir_version=10, opset_imports=opsets)
    model.producer_name = model.producer_version = model.domain = EVIL
    model.doc_string = EVIL
    helper.set_model_props(model, {f"key{EVIL}": EVIL, "labels": f"a{EVIL}\nb\nc"})
    onnx.save(model, path)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / f"folder{FILE}"
    folder.mkdir()
    return save(folder / f"m{FILE}.onnx")


@pytest.fixture
def safe(cli):
    """Runs a command, whose output has to be safe; the outcome.

    With *lines*, what is shown may have lines of its own.
    """

    def run(*argv: object, lines: bool = False):
        outcome = cli(*argv)
        for text in (outcome.out, outcome.err):
            assert not HARMFUL.search(text), ascii(text)
            assert lines or not re.search(r"^\s*forged", text, re.MULTILINE), text
        return outcome

    return run


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize(
    "argv",
    [
        ["run", "MODEL", "random"],
        ["run", "MODEL", "random", "-vv"],
        ["bench", "MODEL", "--repeat", "1"],
        ["bench", "MODEL", "--repeat", "1", "--profile"],
        ["bench", "MODEL", "--repeat", "1", "--compare", "toy"],
        ["explain", "MODEL"],
        ["explain", "MODEL", "--nodes"],
        ["explain", "MODEL", "--why", "Relu"],
        ["explain", "MODEL", "--why", f"last{EVIL}"],
    ],
    ids=lambda argv: " ".join(argv[:1] + argv[2:])[:40].replace(EVIL, ""),
)
def test_a_model_of_evil_names_is_shown_safely(safe, toy, model, argv, as_json) -> None:
    named = [str(model) if word == "MODEL" else word for word in argv]
    choice = [] if "--compare" in argv else ["--ep", toy]
    outcome = safe(*named, *choice, *as_json)
    assert outcome.code == 0, outcome.err
    assert outcome.out


@pytest.mark.parametrize("debug", [[], ["--debug"], ["-vv"]])
@pytest.mark.parametrize("command", ["run", "bench", "explain"])
@pytest.mark.parametrize("domain", ["", f"own{EVIL}"], ids=["onnx", "own"])
def test_a_model_that_nothing_runs_is_told_safely(
    safe, toy, tmp_path: Path, command: str, domain: str, debug: list[str]
) -> None:
    path = save(tmp_path / f"m{FILE}.onnx", f"Op{EVIL}", domain)
    outcome = safe(command, path, "--ep", toy, *debug)
    assert outcome.code == 1
    assert r"\x1b[31m" in outcome.err


def test_words_of_the_command_line_are_told_safely(safe, toy, model) -> None:
    ep_toy = ["--ep", toy]
    for argv in (
        ["run", model, f"nowhere{FILE}.npy", *ep_toy],
        ["run", model, f"nowhere{FILE}", *ep_toy],
        ["run", model, "-i", f"z{FILE}=random", *ep_toy],
        ["run", model, *ep_toy],
        ["run", model, "random", "--labels", f"labels{FILE}", *ep_toy],
        ["run", model, "random", "--ep", f"toy{FILE}"],
        ["run", model, "random", "--policy", f"best{FILE}"],
        ["run", model, "random", "--ep-option", f"toy.a{FILE}=1", *ep_toy],
        ["run", model, "random", "--repeat", FILE, *ep_toy],
        ["run", model, "random", FILE, "more", *ep_toy],
        ["explain", model, "--why", f"none{FILE}", *ep_toy],
        ["explain", f"gone{FILE}.onnx"],
        ["ops", "--domain", FILE],
        ["cache", "clear", FILE],
        [f"command{FILE}"],
    ):
        assert safe(*argv).code in (1, 2), argv


def test_pictures_labels_and_files_of_evil_names(safe, toy, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    graph = helper.make_graph(
        [helper.make_node("Relu", [f"x{EVIL}"], [f"y{EVIL}"])],
        "g",
        [value(f"x{EVIL}", [1, 3, 1, 1])],
        [value(f"y{EVIL}", [1, 3, 1, 1])],
    )
    opsets = [helper.make_opsetid("", 18)]
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=opsets), path)
    picture, labels = tmp_path / f"seven{FILE}.png", tmp_path / f"labels{FILE}"
    image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(picture)
    labels.write_text('["a\\u001b[31m\\nforged", "b\\u202e", "c\\r"]')
    outcome = safe("run", path, picture, "--labels", labels, "--ep", toy)
    assert outcome.code == 0, outcome.err
    assert r"a\x1b[31m\nforged" in outcome.out
    labels.write_bytes(b"a\x1b[31m\r\nb\x9b\nc\xff")
    assert safe("run", path, picture, "--labels", labels, "--ep", toy).code == 1
    picture.write_bytes(b"\x89PNG\r\n\x1b[31m")
    assert safe("run", path, picture, "--ep", toy).code == 1


class EvilFactory(ToyFactory):
    """Says evil things of itself."""

    name = "EvilExecutionProvider"

    def supported_devices(self, devices):
        return [
            ep.EpDevice(
                ep_name=self.name,
                device=pair.device,
                ep_vendor=EVIL,
                metadata={"version": EVIL},
            )
            for pair in super().supported_devices(devices)
        ]

    def diagnose(self):
        return [ep.Finding(level=ep.Level.ERROR, message=EVIL, remedy=EVIL)]


BROKEN = f"raise ImportError({f'broken{EVIL}'!a})\n"


@pytest.mark.parametrize("argv", [["eps", "--load"], ["devices"], ["ops"], ["doctor"]])
@pytest.mark.parametrize("as_json", [[], ["--json"], ["-vv"]])
def test_what_plugins_say_is_shown_safely(safe, site, argv, as_json) -> None:
    from onnxplug.plugins import registry

    site.install("Broken", code=BROKEN)
    registry.add(EvilFactory())
    try:
        outcome = safe(*argv, *as_json, lines=True)
    finally:
        site.modules.append("onnxplug_broken")
    assert outcome.out


@pytest.mark.filterwarnings("always::UserWarning")
def test_warnings_and_logs_are_shown_safely(safe, toy, model, monkeypatch) -> None:
    import logging
    import warnings

    really_run = onnxplug.InferenceSession.run
    one_line = EVIL.replace("\n", " ")

    def run(*arguments):
        logging.getLogger("onnxplug.plugin.made-up").warning("log %s", one_line)
        warnings.warn(f"warning {one_line}", UserWarning, stacklevel=1)
        return really_run(*arguments)

    monkeypatch.setattr(onnxplug.InferenceSession, "run", run)
    outcome = safe("run", model, "random", "--ep", toy)
    assert r"log \x1b[31m" in outcome.err
    assert r"warning \x1b[31m" in outcome.err


def test_a_terminal_gets_no_commands_but_those_of_rich(toy, model, monkeypatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    assert main(["explain", str(model), "--nodes", "--ep", toy]) == 0
    assert not HARMFUL.search(terminal.getvalue())
    assert r"\x1b[31m" in terminal.getvalue()


def test_the_command_line_prints_by_what_escapes() -> None:
    folder = Path(onnxplug_cli.__file__).parent
    for path in folder.rglob("*.py"):
        if path.name in ("text.py", "child.py"):  # the latter writes JSON, for us
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            assert not called or node.func.id != "print", path
