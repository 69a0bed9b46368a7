"""Runs of sessions that are late: the streams of an EP are kept busy around each.

The contract lets the host queue what it likes before and after a partition's work, so
nothing may depend on a device that is idle.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from onnxplug import ep
from onnxplug_testing.conformance.laboratory import Bench
from onnxplug_testing.conformance.subject import Subject
from onnxplug_testing.conformance.taps import replaced


class Load:
    """What is put on streams.

    Attributes:
        runs: how many runs were laden.
        is_on: whether they are.
    """

    def __init__(self, draw: random.Random) -> None:
        self.runs = 0
        self.is_on = True
        self._draw = draw
        self._bench: Bench | None = None

    def on(self, location: ep.MemoryLocation, stream: ep.Stream) -> None:
        """Keep *stream* busy for a while, or the host."""
        if self._bench is None:
            self._bench = Bench(location)
        if self._draw.random() < 0.75:
            self._bench.burden(stream)
        else:
            time.sleep(self._draw.random() * 0.004)

    def let_go(self) -> None:
        """Let the device be closed."""
        self._bench = None


@contextmanager
def laden(subject: Subject, draw: random.Random) -> Iterator[Load]:
    """A context in which partitions that the EP compiles are laden when they run.

    Raises:
        TypeError: the factory takes no attributes.
    """
    load = Load(draw)
    create = subject.factory.create

    @functools.wraps(create)
    def created(*args: Any, **kwargs: Any) -> ep.ExecutionProvider:
        provider = create(*args, **kwargs)
        if hasattr(provider, "__dict__") and provider.location != ep.HOST:
            vars(provider)["compile"] = _compiling(provider, load)
        return provider

    with replaced(subject.factory, "create", created):
        try:
            yield load
        finally:
            load.let_go()


def _compiling(
    provider: ep.ExecutionProvider, load: Load
) -> Callable[[ep.Partition], ep.CompiledPartition]:
    make, location = provider.compile, provider.location

    @functools.wraps(make)
    def compiled(partition: ep.Partition) -> ep.CompiledPartition:
        made = make(partition)
        run = made.run

        @functools.wraps(run)
        def late(inputs: Any, outputs: Any, context: ep.RunContext | None) -> Any:
            stream = None if context is None else context.stream
            is_late = (
                load.is_on
                and stream is not None
                and context is not None
                and context.capture is None
            )
            if stream is not None and is_late:
                load.runs += 1
                load.on(location, stream)
            results = run(inputs, outputs, context)
            if stream is not None and is_late:
                load.on(location, stream)
            return results

        if hasattr(made, "__dict__"):
            vars(made)["run"] = late
        return made

    return compiled
