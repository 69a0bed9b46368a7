"""What an allow-list that was measured refuses, and why."""

from __future__ import annotations

from typing import Any

import pytest

from onnxplug.authoring.allow_list import AllowList
from onnxplug.ep import RefusalCode

LIST = AllowList({}, "an engine", {"float64": "for which it has 32 bits"})


def entry(**changes: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "since": ["13"],
        "types": ["float32"],
        "inputs": ["1"],
        "outputs": ["0"],
        "attributes": ["mode=linear"],
        "refused": [],
    }
    return whole | changes


FACTS = frozenset(
    {"since=13", "types=float32", "inputs=1", "outputs=0", "attribute:mode=linear"}
)


@pytest.mark.parametrize(
    ("remove", "add", "code"),
    [
        ("since=13", "since=1", RefusalCode.OPSET),
        ("types=float32", "types=float64", RefusalCode.DTYPE),
        ("types=float32", "types=int8", RefusalCode.DTYPE),
        ("attribute:mode=linear", "attribute:mode=cubic", RefusalCode.ATTRIBUTE),
        ("inputs=1", "inputs=2", RefusalCode.OTHER),
        ("", "empty:0", RefusalCode.RANK),
    ],
)
def test_what_was_not_seen_is_refused(remove: str, add: str, code: RefusalCode) -> None:
    assert LIST.refusal_of(entry(), FACTS) is None
    reason = LIST.refusal_of(entry(), FACTS - {remove} | {add})
    assert reason is not None and reason.code is code


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ({"dynamic"}, RefusalCode.DYNAMIC_SHAPE),
        ({"rank:0=5"}, RefusalCode.RANK),
        ({"fed:1"}, RefusalCode.NOT_CONSTANT),
        ({"dynamic", "types=float32"}, RefusalCode.DTYPE),
    ],
)
def test_what_was_seen_to_be_wrong_is_refused(
    rule: set[str], code: RefusalCode
) -> None:
    reason = LIST.refusal_of(entry(refused=[frozenset(rule)]), FACTS | rule)
    assert reason is not None and reason.code is code
    assert LIST.refusal_of(entry(refused=[frozenset(rule)]), FACTS - rule) is None or (
        rule <= FACTS
    )
