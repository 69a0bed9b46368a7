"""Bodies of HTTP requests and answers: read within limits, decompressed, compressed."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from onnxplug_serve.errors import Abandoned, BadRequest, TooSlow, UnknownEncoding

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from onnxplug_serve.admission import Held
    from onnxplug_serve.settings import Limits

_WINDOWS: Final = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""Encodings, and what zlib calls them."""

_PART: Final = 1 << 16

_WORTH_COMPRESSING: Final = 1 << 10


async def read_body(request: Request, held: Held, limits: Limits) -> bytearray:
    """The body of *request*, decompressed; *held* has counted it.

    Raises:
        TooLarge, Overloaded: see ``Held.grow``.
        TooSlow: it did not come in time.
        BadRequest: it is not what it says that it is.
        UnknownEncoding: it is encoded otherwise.
        Abandoned: the client went away.
    """
    stated = request.headers.get("content-length", "")
    if stated.isascii() and stated.isdecimal() and len(stated) < 20:
        held.grow(int(stated))
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", *_WINDOWS):
        raise UnknownEncoding(
            f"the body is encoded by {encoding[:40]!r}; expected one of "
            f"{', '.join(_WINDOWS)}, or none"
        )
    decoder = None
    if encoding in _WINDOWS:
        decoder = _Decoder(encoding, held)
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _read(request, held, decoder)
    except TimeoutError as error:
        raise TooSlow(
            f"the body did not come within {limits.body_seconds:g} s"
        ) from error


async def _read(request: Request, held: Held, decoder: _Decoder | None) -> bytearray:
    body = bytearray()
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Abandoned("the client went away")
        part = message.get("body", b"")
        if decoder is None:
            held.grow(len(body) + len(part))
            body += part
        else:
            decoder.add(part, body)
        if not message.get("more_body"):
            break
    if decoder is not None:
        decoder.end()
    return body


class _Decoder:
    """Decompresses no more than may be held."""

    def __init__(self, encoding: str, held: Held) -> None:
        self._encoding = encoding
        self._held = held
        self._zlib = zlib.decompressobj(_WINDOWS[encoding])

    def add(self, part: bytes, body: bytearray) -> None:
        """Append to *body* what *part* is decompressed."""
        try:
            while part:
                made = self._zlib.decompress(part, _PART)
                self._held.grow(len(body) + len(made))
                body += made
                part = self._zlib.unconsumed_tail
        except zlib.error as error:
            raise BadRequest(f"the body is no {self._encoding}: {error}") from error

    def end(self) -> None:
        """Check that all of it came, and no more."""
        if not self._zlib.eof or self._zlib.unused_data:
            raise BadRequest(f"the body is no whole {self._encoding}")


class Answer(Response):  # type: ignore[misc]
    """An answer whose bytes are counted until the client has taken them."""

    def __init__(self, body: bytes, headers: Mapping[str, str], held: Held) -> None:
        super().__init__(body, headers=headers)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if len(self.body) <= _PART:
                self._held.end()
                await super().__call__(scope, receive, send)
                return
            start = {"type": "http.response.start", "status": self.status_code}
            await send({**start, "headers": self.raw_headers})
            part = {"type": "http.response.body", "body": self.body}
            await send({**part, "more_body": True})
            # which waits until most of that is sent
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._held.end()


def encoded(
    body: bytes, headers: Mapping[str, str], request: Request, held: Held
) -> Answer:
    """An answer, compressed if the client asks for it."""
    given = dict(headers)
    accepted = request.headers.get("accept-encoding", "").lower()
    if accepted and len(body) >= _WORTH_COMPRESSING:
        names = {each.partition(";")[0].strip() for each in accepted.split(",")}
        if "gzip" in names:
            body, given["content-encoding"] = gzip.compress(body, 1), "gzip"
        elif "deflate" in names:
            body, given["content-encoding"] = zlib.compress(body, 1), "deflate"
    return Answer(body, given, held)
