"""The protocol over HTTP: an ASGI application.

Paths and objects are those of the `Open Inference Protocol's REST API
<https://github.com/kserve/open-inference-protocol>`_, with its extensions for binary
tensors and model repositories.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from onnxplug_serve.bodies import encoded, read_body
from onnxplug_serve.errors import (
    Abandoned,
    BadRequest,
    Forbidden,
    Overloaded,
    RequestError,
    TooLarge,
    TooSlow,
    Unauthenticated,
)
from onnxplug_serve.inference_json import read_json, read_request, written
from onnxplug_serve.metrics import OTHER
from onnxplug_serve.settings import is_local
from onnxplug_serve.tracing import span

if TYPE_CHECKING:
    from starlette.requests import Request

    from onnxplug_serve.admission import Held
    from onnxplug_serve.requests import InferResponse
    from onnxplug_serve.served_model import ServedModel
    from onnxplug_serve.service import Service
    from onnxplug_serve.settings import Settings

EXTENSIONS: Final = ("binary_tensor_data", "model_repository")

HEADER_LENGTH: Final = "inference-header-content-length"
"""The header that tells how many bytes of a body are JSON; the rest is raw tensors."""

_SOON: Final = 0.02
"""Seconds of a run in which nobody looks whether the client is still there."""

_RETRY: Final = "1"
"""Seconds after which who is refused for the load may ask again."""


def application(service: Service) -> Starlette:
    """The application that answers for *service*."""
    rest = _Rest(service)
    model = "/v2/models/{model}"
    version = model + "/versions/{version}"
    routes = [
        # which come most often, and are looked for in this order
        *(
            Route(f"{path}/infer", rest.infer, methods=["POST"])
            for path in (model, version)
        ),
        Route("/v2/health/live", rest.live),
        Route("/v2/health/ready", rest.ready),
        Route("/v2", rest.server),
        Route("/v2/", rest.server),
        Route("/metrics", rest.metrics),
        *(Route(path, rest.model) for path in (model, version)),
        *(Route(f"{path}/ready", rest.model_ready) for path in (model, version)),
        Route("/v2/repository/index", rest.index, methods=["POST"]),
        Route("/v2/repository/models/{model}/load", rest.load, methods=["POST"]),
        Route("/v2/repository/models/{model}/unload", rest.unload, methods=["POST"]),
    ]
    app = Starlette(routes=[_guarded(service, route) for route in routes])
    app.add_exception_handler(404, _unknown)
    app.add_exception_handler(405, _unknown)
    return app


async def _unknown(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    what = "is not answered here" if status == 404 else "is not answered to this method"
    return JSONResponse({"error": f"{request.url.path[:80]!r} {what}"}, status)


def _guarded(service: Service, route: Route) -> Route:
    """*route*, which asks for the token, and answers errors as the protocol does."""
    answer = route.endpoint
    is_open = route.path.startswith("/v2/health/")

    async def guarded(request: Request) -> Response:
        try:
            _check_origin(request, service.settings)
            if service.settings.token and not is_open:
                _check_token(request, service.settings.token)
            found: Response = await answer(request)
        except RequestError as error:
            return refused(error)
        return found

    methods = None if route.methods is None else list(route.methods)
    return Route(route.path, guarded, methods=methods)


def _check_origin(request: Request, settings: Settings) -> None:
    """Refuse what pages of other sites have a browser send: to a server that only this
    machine reaches, and that asks for no token, a browser here is no stranger."""
    headers = request.headers
    host = headers.get("host", "")
    origin = headers.get("origin")
    if origin is not None and origin.rpartition("://")[2] != host:
        raise Forbidden("pages of other sites are not answered")
    is_stranger = host and not is_local(_name_of(host))
    if is_stranger and not settings.token and not settings.is_reached:
        raise Forbidden(
            f"the server is asked for as {host[:80]!r}; expected localhost, or an "
            "address of this machine's own: by another name a page of another site may "
            "lead here. Start the server with a token, and it answers to any name"
        )


def _name_of(host: str) -> str:
    """The name or address in the header *host*, without the port."""
    name, _, _ = host.rpartition(":") if host.rpartition("]")[2] else (host, "", "")
    return (name or host).strip("[]")


def _check_token(request: Request, token: str) -> None:
    given = request.headers.get("authorization", "")
    if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
        raise Unauthenticated("the request has not the token that is asked for")


def refused(error: RequestError) -> Response:
    """The answer that *error* is."""
    headers = {}
    if isinstance(error, Overloaded):
        headers["retry-after"] = _RETRY
    if isinstance(error, Unauthenticated):
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, TooLarge | TooSlow):
        headers["connection"] = "close"  # the rest of the body is not read
    return JSONResponse({"error": error.told}, error.status, headers)


class _Rest:
    """Answers requests, one method for each path."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def live(self, _: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(self, _: Request) -> Response:
        is_ready = self._service.repository.is_ready
        return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)

    async def server(self, _: Request) -> Response:
        return JSONResponse(self._service.metadata(EXTENSIONS))

    async def metrics(self, _: Request) -> Response:
        metrics = self._service.metrics
        return Response(metrics.text(), headers={"content-type": metrics.CONTENT_TYPE})

    async def model(self, request: Request) -> Response:
        found = self._find(request)
        versions = self._service.repository.versions(found.name)
        return JSONResponse({**found.metadata(), "versions": versions})

    async def model_ready(self, request: Request) -> Response:
        found = self._find(request)
        return JSONResponse({"name": found.name, "ready": True})

    def _find(self, request: Request) -> ServedModel:
        parts = request.path_params
        return self._service.repository.find(parts["model"], parts.get("version", ""))

    async def index(self, request: Request) -> Response:
        asked = await self._small(request)
        only_ready = asked.get("ready") is True
        return JSONResponse(self._service.repository.index(only_ready=only_ready))

    async def load(self, request: Request) -> Response:
        asked = await self._small(request)
        if asked.get("parameters"):
            raise BadRequest(
                "models are loaded as they are in the repository; parameters, such as "
                "a configuration or files, are not taken from the network"
            )
        await self._service.repository.load(request.path_params["model"])
        return JSONResponse({})

    async def unload(self, request: Request) -> Response:
        await self._small(request)
        await self._service.repository.unload(request.path_params["model"])
        return JSONResponse({})

    async def _small(self, request: Request) -> Mapping[str, Any]:
        """The object that a request has for a body, empty if it has none."""
        with self._service.admission.hold() as held:
            limits = self._service.settings.limits
            body = await read_body(request, held, limits)
            if not body.strip():
                return {}
            found = read_json(body, limits)
        if not isinstance(found, dict):
            raise BadRequest("the body is no JSON object")
        return found

    async def infer(self, request: Request) -> Response:
        began = time.monotonic()
        service = self._service
        status, name = 500, OTHER
        try:
            found = self._find(request)
            name = found.name
            held = service.admission.hold()
            try:
                with span("infer", request.headers, model=name, version=found.version):
                    response = await self._infer(request, held)
            except BaseException:
                held.end()
                raise
            status = response.status_code
            return response
        except RequestError as error:
            status = error.status
            raise
        finally:
            seconds = time.monotonic() - began
            service.metrics.answered(name, "http", status, seconds)

    async def _infer(self, request: Request, held: Held) -> Response:
        limits = self._service.settings.limits
        body = await read_body(request, held, limits)
        head = request.headers.get(HEADER_LENGTH)
        asked, how = read_request(body, head, limits)
        held.grow(asked.held)
        # which may be another one by now
        with self._find(request).in_use() as model, _Watch(request):
            response: InferResponse = await model.infer(asked)
        text, raw = written(response, how)
        headers = {"content-type": "application/json"}
        if raw:
            headers["content-type"] = "application/octet-stream"
            headers[HEADER_LENGTH] = str(len(text))
        del asked, response  # their memory is no longer held
        held.keep(len(text) + sum(map(len, raw)))
        return encoded(b"".join([text, *raw]), headers, request, held)


class _Watch:
    """A context that is left when the client is gone; it looks once that may matter.

    Raises:
        Abandoned: the client is gone.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._is_gone = False

    def __enter__(self) -> None:
        asked = asyncio.current_task()
        assert asked is not None
        self._asked = asked
        self._looks: asyncio.Task[None] | None = None
        self._begins = asyncio.get_running_loop().call_later(_SOON, self._begin)

    def _begin(self) -> None:
        self._looks = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        self._asked.cancel()

    def __exit__(self, kind: object, error: object, _: object) -> None:
        self._begins.cancel()
        if self._looks is not None:
            self._looks.cancel()
        if self._is_gone and isinstance(error, asyncio.CancelledError):
            self._asked.uncancel()
            raise Abandoned("the client is gone") from None
