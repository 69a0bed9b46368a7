"""Threads for runs that their caller does not wait for."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def submit(function: Callable[..., Result], *arguments: Any) -> Future[Result]:
    """Call *function* in one of the process's background threads."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(thread_name_prefix="onnxplug-run")
        return _pool.submit(function, *arguments)


def submit_for(
    run: Callable[[], list[Any]],
    callback: Callable[[list[Any], Any, str], None],
    user_data: Any,
) -> None:
    """Call *run* in the background, and then ``callback(results, user_data, "")``.

    When it raises, the results are empty and the last argument is the error's text.
    """

    def work() -> None:
        outcome: tuple[list[Any], Any, str]
        try:
            outcome = run(), user_data, ""
        # the callback gets whatever happens, as it is all the caller has
        except Exception as error:  # noqa: BLE001
            outcome = [], user_data, str(error) or type(error).__name__
        try:
            callback(*outcome)
        except Exception:
            import logging

            logging.getLogger("onnxplug.session").exception(
                "the callback of run_async() raised"
            )

    submit(work)


def _forget() -> None:
    # threads do not survive a fork, and the lock may have been held by one of them
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
