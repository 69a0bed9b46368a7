"""Requests are spans of OpenTelemetry's, where its API is installed and somebody takes
them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tritonclient.utils import InferenceServerException

MODULES = {"http": tritonclient.http, "grpc": tritonclient.grpc}

TRACE = 0x4BF92F3577B34DA6A3CE929D0E0E4736
PARENT = 0x00F067AA0BA902B7
HEADERS = {"traceparent": f"00-{TRACE:032x}-{PARENT:016x}-01"}
"""Copied for each request, as Triton's client adds to what it is given."""


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    """Of all spans of the process: who takes them can be said only once."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    exporter.clear()
    yield exporter
    exporter.clear()


def _ask(served: Any, protocol: str, name: str, **more: Any) -> None:
    x = np.ones((1, 4), np.float32)
    given = MODULES[protocol].InferInput(name, list(x.shape), "FP32")
    given.set_data_from_numpy(x)
    served.client(protocol).infer("layer", [given], **more)


def _one(spans: InMemorySpanExporter) -> Any:
    for _ in range(500):
        if spans.get_finished_spans():
            break
        time.sleep(0.01)
    (span,) = spans.get_finished_spans()
    return span


@pytest.mark.parametrize("protocol", MODULES)
def test_a_request_is_a_span_of_its_client_s_trace(
    served, spans, protocol: str
) -> None:
    _ask(served, protocol, "x", headers={**HEADERS})
    span = _one(spans)
    assert span.name == "infer" and span.kind is trace.SpanKind.SERVER
    assert span.context.trace_id == TRACE and span.parent.span_id == PARENT
    assert dict(span.attributes) == {"model": "layer", "version": "1"}
    assert span.status.is_ok
    assert 0 < span.end_time - span.start_time < 10e9


@pytest.mark.parametrize("protocol", MODULES)
def test_without_a_trace_it_is_one_of_its_own(served, spans, protocol: str) -> None:
    _ask(served, protocol, "x")
    assert _one(spans).parent is None


@pytest.mark.parametrize("protocol", MODULES)
def test_what_fails_is_said(served, spans, protocol: str) -> None:
    with pytest.raises(InferenceServerException):
        _ask(served, protocol, "z", headers={**HEADERS})
    span = _one(spans)
    assert not span.status.is_ok and "no input 'z'" in span.status.description


def test_headers_that_are_no_trace_do_no_harm(served, spans) -> None:
    for value in (
        "",
        "00-0-0-0",
        "x" * 5000,
        "00-" + "f" * 32 + "-" + "0" * 16 + "-01",
    ):
        spans.clear()
        _ask(served, "http", "x", headers={"traceparent": value, "tracestate": value})
        assert _one(spans).parent is None


def test_without_the_api_there_are_none() -> None:
    """The import of the API fails, and requests are answered."""
    program = (
        "import sys\n"
        "sys.modules['opentelemetry'] = None\n"
        "from onnxplug_serve.tracing import span, trace\n"
        "assert trace is None\n"
        "with span('infer', {}, model='a'):\n"
        "    print('answered')\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert found.stdout == "answered\n", found.stderr
