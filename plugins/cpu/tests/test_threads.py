"""The limit on BLAS threads, set and taken back by sessions that overlap."""

from __future__ import annotations

import contextlib

import threadpoolctl

from onnxplug_cpu.threads import limited_to


def threads() -> list[int]:
    return [
        library["num_threads"]
        for library in threadpoolctl.threadpool_info()
        # other tests load libraries with a BLAS of their own
        if library["user_api"] == "blas" and "numpy" in library["filepath"]
    ]


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
