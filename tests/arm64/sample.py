"""A plugin of pytest that runs some cases of each test only, always the same.

PYTHONPATH=tests/arm64 python -m pytest -p sample --one-in 8 …

Of a test that is repeated for descriptions of processors, the parameter ``isa``, cases
of the last are run: by how tests list them, that is the one that has most.
"""

from __future__ import annotations

from typing import Any

import pytest

WHOLE = ("test_suite_sample.py", "test_planted_for_arm.py")
"""Files of which all cases are run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--one-in",
        type=int,
        default=1,
        metavar="N",
        help="of each test, run the first case and one in N of the others",
    )
    parser.addoption(
        "--suite-one-in",
        type=int,
        default=25,
        metavar="N",
        help="run one in N cases of ONNX's backend suite",
    )


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    distance = config.getoption("--one-in")
    last = {_test(item): _isa(item) for item in items}
    seen: dict[str, int] = {}
    kept, others = [], []
    for item in items:
        test = _test(item)
        if _isa(item) != last[test]:
            others.append(item)
            continue
        number = seen[test] = seen.get(test, -1) + 1
        is_whole = item.path.name in WHOLE
        (kept if is_whole or number % distance == 0 else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = kept


def _test(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _isa(item: pytest.Item) -> Any:
    called = getattr(item, "callspec", None)
    return called.params.get("isa") if called else None
