"""Spans of requests, if OpenTelemetry's API is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

try:
    from opentelemetry import propagate, trace
except ImportError:
    trace = None


@contextmanager
def span(name: str, headers: Mapping[str, str], **attributes: Any) -> Iterator[None]:
    """A context in which a request is answered; *headers* tell what it is a part of."""
    if trace is None:
        yield
        return
    tracer = trace.get_tracer("onnxplug.serve")
    parent = propagate.extract(headers)
    with tracer.start_as_current_span(
        name, context=parent, kind=trace.SpanKind.SERVER, attributes=attributes
    ):
        yield
