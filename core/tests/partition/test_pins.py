"""What pins are in text, and which nodes a pattern matches."""

from __future__ import annotations

import fnmatch
import random
import time

import pytest

from onnxplug.entries import PLACE, pins
from onnxplug.graph import Node
from onnxplug.partition.pins import Pin


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" ; \n", []),
        ("op:Softmax=cpu", [("op:Softmax", "cpu")]),
        (
            " op:a.b.*=cpu ;\nname:/x y/*= OpenVINO; ",
            [("op:a.b.*", "cpu"), ("name:/x y/*", "OpenVINO")],
        ),
        # names as converters make them
        ("name:a;b=c;d=cpu", [("name:a;b=c;d", "cpu")]),
        ("name:op:x=cpu;op:X=a", [("name:op:x", "cpu"), ("op:X", "a")]),
    ],
)
def test_pins_in_text(text: str, expected: list[tuple[str, str]]) -> None:
    assert pins(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Softmax=cpu",
        "op:Softmax",
        "op:Softmax=",
        "op:=cpu",
        "name:=cpu",
        "=cpu",
        "node:x=cpu",
        "Softmax=cpu;op:Gelu=cpu",
        "op:Softmax=cpu;Gelu=cpu",
        "op:Softmax=cpu Gelu=cpu",
        "name:a=cpu;b",
    ],
)
def test_what_is_no_pin(text: str) -> None:
    assert pins(text) is None


@pytest.mark.parametrize(
    ("pattern", "domain", "op_type", "matches"),
    [
        ("op:Softmax", "", "Softmax", True),
        ("op:Softmax", "", "softmax", False),
        ("op:Softmax", "com.microsoft", "Softmax", False),
        ("op:*", "", "Softmax", True),
        ("op:*", "com.microsoft", "Gelu", False),
        ("op:ai.onnx.Softmax", "", "Softmax", True),
        ("op:com.microsoft.*", "com.microsoft", "Gelu", True),
        ("op:com.microsoft.*", "com.microsoft.nchwc", "Conv", False),
        ("op:*.*", "", "Softmax", True),
        ("op:*.*", "com.microsoft.nchwc", "Conv", True),
        ("op:Q*Linear", "", "QuantizeLinear", True),
        ("op:?RU", "", "GRU", True),
        ("name:Softmax", "", "Softmax", False),
        ("name:/layers.[0]/x", "", "Add", True),
        ("name:/layers.?0?/*", "", "Add", True),
        ("name:/layers.0/x", "", "Add", False),
        ("name:*", "", "Add", True),
    ],
)
def test_what_matches(pattern: str, domain: str, op_type: str, matches: bool) -> None:
    node = Node(op_type, (), ("y",), domain=domain, name="/layers.[0]/x")
    assert Pin(PLACE, pattern, "EP").matches(node) is matches


def test_globs_are_those_of_fnmatch() -> None:
    draw = random.Random(0)
    found = []
    for _ in range(3000):
        text = "".join(draw.choices("ab*", k=draw.randrange(7)))
        glob = "".join(draw.choices("ab?*", k=draw.randrange(1, 7)))
        node = Node("Add", (), ("y",), name=text)
        found.append(Pin(PLACE, f"name:{glob}", "EP").matches(node))
        assert found[-1] is fnmatch.fnmatchcase(text, glob), (text, glob)
    assert 300 < sum(found) < 2700


def test_no_pattern_takes_long() -> None:
    node = Node("Add", (), ("y",), name="a" * 5000)
    started = time.perf_counter()
    assert not Pin(PLACE, "name:" + "*a" * 50 + "b", "EP").matches(node)
    assert time.perf_counter() - started < 5
