"""Connections of HTTP: what they send without asking anything is bounded, in bytes and
in time, and so is how long their answers are not taken.

uvicorn bounds bodies and connections between requests by itself, or by what the
application does; heads of requests, what is sent after an answer, and answers that
nobody reads it does not.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from onnxplug_serve.settings import Limits


_logger: Final = logging.getLogger("onnxplug.serve.http")
# what strangers send is nothing to warn of, each time that they do
_logger.setLevel(logging.ERROR)


def connection_class(limits: Limits) -> type[Connection]:
    """Connections within *limits*, as uvicorn makes them."""
    return type("Connection", (Connection,), {"limits": limits})


class Connection(HttpToolsProtocol):  # type: ignore[misc]
    """A connection that is closed when it keeps the server waiting.

    Attributes:
        limits: of its class: see :func:`connection_class`.
    """

    limits: Limits

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.logger = _logger
        self._unasked = 0
        """Bytes since the last that were of a body, or the last of a request."""
        self._is_in_body = False
        self._waits: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._no_longer_wait()
        self.resume_writing()
        # uvicorn leaves this one to run out where a connection was reset
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unasked += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._unasked > self.limits.head_bytes:
            self._refuse(431, f"the head has more than {self.limits.head_bytes} bytes")
        elif self._waits is None and not self._is_answering:
            # else the application gives up bodies that are too slow
            self._wait()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def on_headers_complete(self) -> None:
        self._is_in_body = True
        self._no_longer_wait()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unasked = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unasked = 0
        self._is_in_body = False
        self._no_longer_wait()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_in_body and not self.transport.is_closing():
            # what is left of the body is not wanted, but keeps the answer from arriving
            # if nobody reads it
            self._unset_keepalive_if_required()
            self._wait()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, in the protocol's words."""
        self._refuse(400, "the request is no HTTP/1.1")

    def _wait(self) -> None:
        """Wait so long for what is to come, and no longer."""
        if self._waits is None:
            self._waits = self.loop.call_later(self.limits.body_seconds, self._give_up)

    def _no_longer_wait(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None

    def _give_up(self) -> None:
        self._waits = None
        if self._unasked and not self._is_in_body:
            seconds = self.limits.body_seconds
            self._refuse(408, f"the request did not come within {seconds:g} s")
        else:
            self.transport.close()

    def _refuse(self, status: int, why: str) -> None:
        """Answer by the protocol's error, unless another answer is on its way."""
        if not self._is_answering or not self.cycle.response_started:
            body = json.dumps({"error": why}).encode()
            head = (
                f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(
            self.limits.answer_seconds, self.transport.abort
        )

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()
