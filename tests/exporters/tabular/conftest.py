"""Keeps the libraries that fit small models from sharing them out among threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads of OpenMP that wait for each other take longer than the work."""
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    with threadpool_limits(1, user_api="openmp"):
        yield


@pytest.fixture
def integer_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes skl2onnx write flags as integers: protobuf 7 takes no booleans for them."""
    from skl2onnx.common import tree_ensemble as writing

    flag = "nodes_missing_value_tracks_true"
    write = writing.add_node

    def add_node(*values: Any, **named: Any) -> None:
        write(*values, **named | {flag: int(named.get(flag, 0))})

    monkeypatch.setattr(writing, "add_node", add_node)
