"""Random graphs across an EP on GPUs and the CPU EP, against arrays of numpy."""

from __future__ import annotations

import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import onnxplug
from onnxplug.authoring.record import Record

from ....cpu.tests.compiler.differential import (
    Case,
    difference,
    disagreement,
    of_any_size,
    other_sizes,
    outcome,
    session,
)
from ....cpu.tests.compiler.random_graphs import RandomGraph
from ....cpu.tests.compiler.random_nodes import MAKERS, VIEWS


class OnGpu(Record):
    """An EP on GPUs.

    Attributes:
        ep: its name.
        space: of its memory.
        exact: options by which it rounds no factors.
        captures: options by which it captures runs.
        threads: that run at once.
        replays_in_place: captured runs may write where they are fed.
    """

    ep: str
    space: str
    exact: Mapping[str, str]
    captures: Mapping[str, str]
    threads: int = 8
    replays_in_place: bool = True

    def check(self, seed: int) -> None:
        """A graph, by *seed* of fixed sizes or of any; by some, on what is bound,
        captured, or in threads."""
        choose = random.Random(seed)
        case = RandomGraph(seed).make(
            choose.randint(5, 25), choose.choice([MAKERS, MAKERS, VIEWS])
        )
        fixed = seed % 2 == 0
        model = case.model if fixed else of_any_size(case.model)
        expected = session(model, compiled=False)
        eps = [(self.ep, dict(self.exact)), "CPUExecutionProvider"]
        found = onnxplug.InferenceSession(model, providers=eps)
        feeds = [case.feeds]
        if not fixed:
            # errors grow with the sizes, which are at most twice as large
            feeds += [other_sizes(case, 2 * seed + number) for number in range(2)]
        for each in feeds:
            if has_numbers(expected, each):
                assert not disagreement(case, each, expected, found, slack=8)
        if seed % 4 == 2:
            self._check_bound(choose, case, expected, found)
        if seed % 8 in (0, 6):
            self.check_captured(choose, case)
        if seed % 8 == 4:
            with ThreadPoolExecutor(self.threads) as threads:
                again = threads.map(
                    lambda _: disagreement(case, case.feeds, expected, found, slack=8),
                    range(2 * self.threads),
                )
                assert set(again) == {None}

    def _check_bound(
        self,
        choose: random.Random,
        case: Case,
        expected: onnxplug.InferenceSession,
        found: onnxplug.InferenceSession,
    ) -> None:
        """Runs on what is bound, on the host or the device, also to what is fed."""
        wanted = expected.run(None, case.feeds)
        for _ in range(2):
            binding = found.io_binding()
            fed = {}
            for arg in found.get_inputs():
                space = choose.choice(["cpu", self.space])
                x = case.feeds[arg.name].copy()
                fed[arg.name] = onnxplug.OrtValue.ortvalue_from_numpy(x, space)
                binding.bind_ortvalue_input(arg.name, fed[arg.name])
            for arg, right in zip(found.get_outputs(), wanted, strict=True):
                fits = [
                    name
                    for name, x in case.feeds.items()
                    if (x.dtype, x.shape) == (right.dtype, right.shape) and name in fed
                ]
                if fits and choose.random() < 0.5:
                    binding.bind_ortvalue_output(arg.name, fed.pop(fits[0]))
                else:
                    binding.bind_output(arg.name, choose.choice(["cpu", self.space]))
            found.run_with_iobinding(binding)
            for name, value, right in zip(
                case.errors, binding.get_outputs(), wanted, strict=True
            ):
                array = np.asarray(value.numpy())
                assert not difference(right, array, case.errors[name] * 8), name

    def check_captured(self, choose: random.Random, case: Case) -> bool:
        """Runs that are captured, and replayed for other feeds, by threads, each with
        memory of its own; some give a result where they were fed.

        Returns:
            Whether the whole graph is on the EP, and so is captured.
        """
        expected = session(case.model, compiled=False)
        wanted = [expected.run(None, feeds) for feeds in turned(case)]
        if not all(has_numbers(expected, feeds) for feeds in turned(case)):
            return False
        options = {**self.exact, **self.captures}
        try:
            found = onnxplug.InferenceSession(
                case.model, providers=[(self.ep, options)]
            )
        except (onnxplug.errors.SessionRefused, onnxplug.errors.UnassignedNode):
            return False
        in_place = self.replays_in_place and choose.random() < 0.5

        def replay(_: int) -> None:
            binding, values = found.io_binding(), {}
            for arg in found.get_inputs():
                value = onnxplug.OrtValue.ortvalue_from_numpy(
                    case.feeds[arg.name], self.space
                )
                values[arg.name] = value
                binding.bind_ortvalue_input(arg.name, value)
            free = [*values] if in_place else []
            for arg, right in zip(found.get_outputs(), wanted[0], strict=True):
                fits = [
                    name
                    for name in free
                    if (right.dtype, right.shape)
                    == (case.feeds[name].dtype, case.feeds[name].shape)
                ]
                room = values[free.pop(free.index(fits[0]))] if fits else None
                if room is None:
                    zeros = np.zeros_like(right)
                    room = onnxplug.OrtValue.ortvalue_from_numpy(zeros, self.space)
                binding.bind_ortvalue_output(arg.name, room)
            for feeds, results in zip(turned(case), wanted, strict=True):
                for name, value in values.items():
                    value.update_inplace(feeds[name])
                found.run_with_iobinding(binding)
                for name, value, right in zip(
                    case.errors, binding.get_outputs(), results, strict=True
                ):
                    array = np.asarray(value.numpy())
                    assert not difference(right, array, case.errors[name] * 8), name

        with ThreadPoolExecutor(self.threads) as threads:
            list(threads.map(replay, range(self.threads)))
        return True


def has_numbers(expected: onnxplug.InferenceSession, feeds: Any) -> bool:
    """Whether no result is NaN, as of sizes of 0: drivers may take it that none is."""
    results = outcome(expected, feeds)
    if isinstance(results, Exception):
        return True
    return not any(x.dtype.kind == "f" and np.isnan(x).any() for x in results)


def turned(case: Case) -> list[dict[str, Any]]:
    """The feeds, and then those with floats in other places: no sizes change, and no
    index is out of range."""

    def moved(x: np.ndarray[Any, Any], by: int) -> np.ndarray[Any, Any]:
        return np.roll(x.reshape(-1), by).reshape(x.shape) if x.dtype.kind == "f" else x

    return [
        {name: moved(x, by) for name, x in case.feeds.items()} for by in (0, 0, 1, 2)
    ]
