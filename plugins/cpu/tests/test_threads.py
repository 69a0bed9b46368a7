"""The limit on BLAS threads, set and taken back by sessions that overlap."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from pathlib import Path

import numpy as np
import pytest
import threadpoolctl

import onnxplug_kernels
from onnxplug_cpu.threads import limited_to, limiting, uses_blas
from onnxplug_kernels.families import FAMILIES


def threads() -> list[int]:
    return [
        library["num_threads"]
        for library in threadpoolctl.threadpool_info()
        # other tests load libraries with a BLAS of their own
        if library["user_api"] == "blas" and "numpy" in library["filepath"]
    ]


def test_what_multiplies_matrices_says_so() -> None:
    folder = Path(onnxplug_kernels.__file__).parent
    for family in set(FAMILIES.values()):
        text = (folder / f"{family.replace('.', '/')}.py").read_text("utf-8")
        multiplies = re.search(r"matmul\(|xp\.matmul|linalg\.det|\w @ \w", text)
        members = [key for key, found in FAMILIES.items() if found == family]
        assert {uses_blas(*each) for each in members} == {multiplies is not None}
    assert uses_blas("com.example", "Add")


def test_limits_that_overlap_leave_nothing_behind() -> None:
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = threads()
        one, other = contextlib.ExitStack(), contextlib.ExitStack()
        one.enter_context(limited_to(1))
        other.enter_context(limited_to(1))
        one.close()  # the first to come is the first to go, as in two threads
        assert set(threads()) == {1}
        other.close()
        assert threads() == before


@pytest.mark.parametrize(
    ("sizes", "limit"), [((2, 512), 2), ((4, 513), 1), ((2, 2, 2), 1)]
)
def test_small_products_are_not_limited(sizes: tuple[int, ...], limit: int) -> None:
    found = []
    function = limiting(lambda *arrays: found.append(set(threads())), 1)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        function(*map(np.ones, sizes))
    assert found == [{limit}]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_limit_of_another_thread_ends_in_the_child_of_a_fork() -> None:
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with limited_to(1):
            held.set()
            go_on.wait(10)

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = threads()
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(10)
        child = os.fork()
        if child == 0:
            with limited_to(1):
                inside = set(threads())
            os._exit(0 if inside == {1} and threads() == before else 1)
        go_on.set()
        thread.join()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert threads() == before
