"""What is measured, in Prometheus' terms."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

_SECONDS: Final = tuple(
    base * 10.0**power for power in range(-4, 2) for base in (1, 2.5, 5)
)
_JOINED: Final = (1, 2, 4, 8, 16, 32, 64, 128)

OTHER: Final = "other"
"""In place of names that no model has: whoever asks does not make new series."""


class Metrics:
    """The metrics of one server; not those of its process."""

    CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        by_model = ("model", "version")
        self._requests = Counter(
            "onnxplug_requests",
            "Requests that were answered, by protocol and status of HTTP.",
            ("model", "protocol", "status"),
            registry=self.registry,
        )
        self._latency = Histogram(
            "onnxplug_request_seconds",
            "From when a request was read until it was answered.",
            ("model", "protocol"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._queue = Histogram(
            "onnxplug_queue_seconds",
            "That the first request of a run waited.",
            by_model,
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._run = Histogram(
            "onnxplug_run_seconds",
            "That runs of a model took.",
            by_model,
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._joined = Histogram(
            "onnxplug_run_requests",
            "Requests that were joined in a run.",
            by_model,
            buckets=_JOINED,
            registry=self.registry,
        )
        self._held = Gauge(
            "onnxplug_held_bytes",
            "Of requests that are read, wait or run.",
            registry=self.registry,
        )
        self._models = Gauge(
            "onnxplug_model_ready",
            "1 for versions of models that are ready.",
            by_model,
            registry=self.registry,
        )

    def observer(
        self, model: str, version: str
    ) -> Callable[[int, float, float], object]:
        """What a scheduler tells of its runs."""
        joined = self._joined.labels(model, version)
        queue = self._queue.labels(model, version)
        run = self._run.labels(model, version)

        def observe(requests: int, waited: float, took: float) -> None:
            joined.observe(requests)
            queue.observe(waited)
            run.observe(took)

        return observe

    def answered(self, model: str, protocol: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._requests.labels(model, protocol, str(status)).inc()
        self._latency.labels(model, protocol).observe(seconds)

    def ready(self, model: str, version: str, *, is_ready: bool) -> None:
        """A version of a model is ready, or is no more."""
        if is_ready:
            self._models.labels(model, version).set(1)
        else:
            for metric in (self._models, self._joined, self._queue, self._run):
                with suppress(KeyError):
                    metric.remove(model, version)

    def watch_held(self, held: Callable[[], int]) -> None:
        """*held* tells how many bytes are."""
        self._held.set_function(held)

    def text(self) -> bytes:
        """All of them, in the format of :data:`CONTENT_TYPE`."""
        return bytes(generate_latest(self.registry))
