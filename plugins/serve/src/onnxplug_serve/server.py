"""A server: listens over HTTP and gRPC in one event loop, and ends gracefully."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import grpc
import uvicorn

from onnxplug.errors import OnnxplugError
from onnxplug_serve import grpc_service, rest
from onnxplug_serve.service import Service
from onnxplug_serve.settings import Settings

_logger = logging.getLogger("onnxplug.serve")

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_FRAME: Final = 1 << 16
"""Bytes of a message beside its tensors: names, shapes, parameters."""


class CannotListen(OnnxplugError, OSError):
    """The port is taken, or the address is not this machine's."""


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
            CannotListen: see there.
        """
        if self.settings.is_open:
            _logger.warning(
                "the server listens at %s without a token: whoever reaches it can use "
                "it",
                self.settings.host,
            )
        web = await self._listen_http()
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

    async def _listen_http(self) -> _Web | None:
        settings = self.settings
        if settings.http_port is None:
            return None
        bound = _bind(settings.host, settings.http_port)
        self.http_port = bound.getsockname()[1]
        config = uvicorn.Config(
            rest.application(self.service),
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=settings.limits.connections,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=max(int(settings.drain), 1),
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.key,
        )
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
