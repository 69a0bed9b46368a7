"""The children of forks are told that Core AI does not serve them."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onnxplug


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_of_a_fork_is_told_to_be_started_otherwise(
    parse: Callable[..., Any], alone: Callable[..., onnxplug.InferenceSession]
) -> None:
    model = parse("y = Add (x, x)")
    fed = {"x": np.ones((2, 2), np.float32)}

    def use(tells: Any) -> None:
        said = []
        for session in (lambda: before, lambda: alone(model)):
            try:
                session().run(None, fed)
            except Exception as error:  # noqa: BLE001 (what it says is looked at)
                said.append(str(error))
        tells.send(said)

    with alone(model) as before:
        before.run(None, fed)
        fork = multiprocessing.get_context("fork")
        told, tells = fork.Pipe(duplex=False)
        child = fork.Process(target=use, args=(tells,))
        child.start()
        try:
            assert told.poll(60), "it hangs"
            said = told.recv()
        finally:
            child.kill()
            child.join()
        assert len(said) == 2
        assert all("start processes by spawn" in text for text in said)
        before.run(None, fed)
