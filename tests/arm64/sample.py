"""A plugin of pytest that runs some cases of each test only, always the same.

PYTHONPATH=tests/arm64 python -m pytest -p sample --one-in 8 …
"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--one-in",
        type=int,
        default=1,
        metavar="N",
        help="of each test, run the first case and one in N of the others",
    )


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    distance = config.getoption("--one-in")
    seen: dict[str, int] = {}
    kept, others = [], []
    for item in items:
        test = item.nodeid.partition("[")[0]
        number = seen[test] = seen.get(test, -1) + 1
        (others if number % distance else kept).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = kept
