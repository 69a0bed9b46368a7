"""Keeps the libraries that fit small models from sharing them out among threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads of OpenMP that wait for each other take longer than the work."""
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    with threadpool_limits(1, user_api="openmp"):
        yield
