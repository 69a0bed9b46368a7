"""A server: listens over HTTP and gRPC in one event loop, and ends gracefully."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import grpc
import uvicorn

from onnxplug.errors import OnnxplugError
from onnxplug_serve import grpc_service, rest
from onnxplug_serve.connections import connection_class
from onnxplug_serve.service import Service
from onnxplug_serve.settings import Settings

_logger = logging.getLogger("onnxplug.serve")

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_IDLE_MS: Final = 300_000
"""After which a connection of gRPC without calls is closed; its client makes another
when it needs one."""

_FRAME: Final = 1 << 16
"""Bytes of a message beside its tensors: names, shapes, parameters."""


class CannotListen(OnnxplugError, OSError):
    """The port is taken, or the address is not this machine's."""


class CannotUseCertificate(OnnxplugError, OSError):
    """The certificate or its key cannot be read, or do not go together."""


class Server:
    """Serves models until it is told to end.

    Args:
        settings: how; checked here.

    Attributes:
        http_port, grpc_port: where it listens, once it does; ``None``: not at all.

    Raises:
        InvalidArgument: *settings* do not go together.
    """

    def __init__(self, settings: Settings) -> None:
        settings.check()
        self.settings = settings
        self.service = Service(settings)
        self.http_port: int | None = None
        self.grpc_port: int | None = None
        self._ends = asyncio.Event()

    def end(self) -> None:
        """Have it end: what was asked is answered, and nothing else; called in its
        event loop."""
        self._ends.set()

    async def run(self, started: Callable[[], object] = lambda: None) -> None:
        """Serve until :meth:`end`, or a signal to end.

        Args:
            started: called when it listens; models may still be loading.

        Raises:
            CannotListen, CannotUseCertificate: see there.
        """
        self._warn()
        secured = _secured(self.settings)
        web = await self._listen_http(secured)
        try:
            calls = await self._listen_grpc()
        except BaseException:
            if web is not None:
                web.server.should_exit = True
                await web.task
            raise
        started()
        with _signals(self.end):
            loading = asyncio.create_task(self.service.repository.load_all())
            await self._ends.wait()
        await self._finish(web, calls, loading)

    def _warn(self) -> None:
        settings = self.settings
        if not settings.is_reached:
            return
        if not settings.token:
            _logger.warning(
                "the server listens at %s without a token: whoever reaches it can use "
                "it",
                settings.host,
            )
        elif settings.certificate is None:
            _logger.warning(
                "the server listens at %s without TLS: whoever listens on the way "
                "reads the token",
                settings.host,
            )

    async def _finish(self, web: _Web | None, calls: Any, loading: Any) -> None:
        """Answer what was asked, then close all."""
        if not loading.done():
            await asyncio.wait([loading], timeout=self.settings.drain)
        # who asks for readiness is told before nobody listens any more
        closing = asyncio.create_task(self.service.repository.close())
        ending = [closing]
        if calls is not None:
            ending.append(asyncio.create_task(calls.stop(self.settings.drain)))
        if web is not None:
            web.server.should_exit = True
            ending.append(web.task)
        await asyncio.gather(*ending)

    async def _listen_http(self, secured: ssl.SSLContext | None) -> _Web | None:
        settings = self.settings
        if settings.http_port is None:
            return None
        bound = _bind(settings.host, settings.http_port)
        self.http_port = bound.getsockname()[1]
        config = uvicorn.Config(
            rest.application(self.service),
            http=connection_class(settings.limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=settings.limits.connections,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=max(int(settings.drain), 1),
        )
        config.load()
        config.ssl = secured
        server = uvicorn.Server(config)
        # signals are the whole server's
        server.capture_signals = nullcontext
        task = asyncio.create_task(server.serve(sockets=[bound]))
        while not server.started and not task.done():
            await asyncio.sleep(0.005)
        if task.done():
            task.result()
        return _Web(server, task)

    async def _listen_grpc(self) -> Any:
        settings = self.settings
        if settings.grpc_port is None:
            return None
        limits = settings.limits
        server = grpc.aio.server(
            maximum_concurrent_rpcs=limits.connections,
            options=[
                ("grpc.max_receive_message_length", limits.request_bytes + _FRAME),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
                # of connections that ask nothing
                ("grpc.server_handshake_timeout_ms", int(limits.body_seconds * 1e3)),
                ("grpc.max_connection_idle_ms", _IDLE_MS),
            ],
        )
        server.add_generic_rpc_handlers((grpc_service.handler(self.service),))
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address = f"{host}:{settings.grpc_port}"
        try:
            if settings.certificate is None or settings.key is None:
                self.grpc_port = server.add_insecure_port(address)
            else:
                pair = (settings.key.read_bytes(), settings.certificate.read_bytes())
                credentials = grpc.ssl_server_credentials([pair])
                self.grpc_port = server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise CannotListen(f"cannot listen at {address}: {error}") from error
        await server.start()
        return server


class _Web:
    """uvicorn's server, and the task that it runs in."""

    def __init__(self, server: uvicorn.Server, task: asyncio.Task[None]) -> None:
        self.server = server
        self.task = task


@contextmanager
def _signals(end: Callable[[], None]) -> Iterator[None]:
    """A context in which signals to end call *end*, where this is the main thread."""
    loop = asyncio.get_running_loop()
    added = []
    for each in _SIGNALS:
        try:
            loop.add_signal_handler(each, end)
        except (NotImplementedError, RuntimeError, ValueError):
            continue  # another thread's, or Windows
        added.append(each)
    try:
        yield
    finally:
        for each in added:
            loop.remove_signal_handler(each)


def _secured(settings: Settings) -> ssl.SSLContext | None:
    """What TLS needs; ``None``: there is to be none."""
    if settings.certificate is None or settings.key is None:
        return None

    def no_password() -> str:
        # else it would be asked for at the terminal
        raise CannotUseCertificate(
            f"the key {settings.key} is encrypted; give one that is not"
        )

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.certificate, settings.key, no_password)
    except CannotUseCertificate:
        raise
    except OSError as error:  # which SSLError is, too
        raise CannotUseCertificate(
            f"cannot use the certificate {settings.certificate} with the key "
            f"{settings.key}: {error}; expected PEM files that go together"
        ) from error
    return context


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # asyncio has small answers sent at once where it knows that it is TCP
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        raise CannotListen(f"cannot listen at {host}:{port}: {error}") from error
    return bound
