"""A deployment of Ray Serve: onnxplug-serve's models, batches, limits and metrics, in
Ray's replicas and behind Ray's proxies.

Ray listens, starts, replaces and scales; what answers a request is the application of
:mod:`onnxplug_serve.rest`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onnxplug.errors import OnnxplugError, PluginError, SelectionError
from onnxplug_ray.artefacts import Artefacts
from onnxplug_ray.errors import CannotDeploy
from onnxplug_ray.metrics_mirror import MetricsMirror
from onnxplug_ray.node import this_node
from onnxplug_ray.opening import ep_not_here, eps_in_use, with_threads
from onnxplug_ray.sharing import SharedModel
from onnxplug_serve import rest
from onnxplug_serve.errors import RequestError
from onnxplug_serve.requests import InferRequest
from onnxplug_serve.service import Service
from onnxplug_serve.settings import Settings

if TYPE_CHECKING:
    from ray.serve import Application

    from onnxplug_ray.kept_files import KeptFiles

NODE_HEADER: Final = b"onnxplug-node"
"""The header of an answer that tells the node it came from."""

EPS_HEADER: Final = b"onnxplug-eps"
"""The one that tells the EPs of the model that was asked for."""

_IN_PATH: Final = ("", "v2", "models")


class Replica:
    """What one replica does.

    Args:
        models: name to a shared model, or to a path that is there on all nodes.
        settings: of the server; where it listens, and its models, do not matter.

    Raises:
        EpNotOnNode: the node has not the EPs that were asked for.
        CannotDeploy: a model cannot be loaded.
    """

    async def __init__(  # type: ignore[misc]  # Ray Serve awaits it
        self, models: Mapping[str, SharedModel | str], settings: Settings
    ) -> None:
        self._kept: list[KeptFiles] = []
        paths = {
            name: await asyncio.to_thread(self._path, model)
            for name, model in models.items()
        }
        settings = replace(
            settings, models=paths, options=with_threads(settings.options)
        )
        settings.check()
        self.node = this_node()
        self.service = Service(settings)
        self._mirror = MetricsMirror(self.service.metrics.registry)
        loop = asyncio.get_running_loop()
        for name, model in models.items():
            await asyncio.to_thread(self._load, name, model, loop)
        for each in self.service.repository.index():  # of a folder besides
            if each["state"] != "READY":
                await asyncio.to_thread(self._load, each["name"], "", loop)

    def _path(self, model: SharedModel | str) -> Path:
        if not isinstance(model, SharedModel):
            return Path(model)
        kept = model.keep()
        self._kept.append(kept)
        return kept.folder / model.files[0].name

    def _load(
        self, name: str, model: SharedModel | str, loop: asyncio.AbstractEventLoop
    ) -> None:
        settings = self.service.settings
        once: AbstractContextManager[None] = nullcontext()
        if isinstance(model, SharedModel):
            asked = (model.digest, settings.providers, settings.policy)
            once = Artefacts(model.store, repr(asked)).once("deployment")
        try:
            with once:
                loading = self.service.repository.load(name)
                asyncio.run_coroutine_threadsafe(loading, loop).result()
        except RequestError as error:
            cause = error.__cause__
            if isinstance(cause, PluginError | SelectionError):
                asked_for = settings.providers or settings.policy
                raise ep_not_here(cause, asked_for) from error
            raise CannotDeploy(f"on node {self.node}: {error}") from error

    def __serve_build_asgi_app__(self) -> Any:
        """Called by Ray Serve when the replica is made."""
        return _Telling(rest.application(self.service), self)

    def eps(self, name: str) -> str:
        """The EPs that a model uses; empty if it is not there."""
        try:
            return eps_in_use(self.service.repository.find(name).session)
        except OnnxplugError:
            return ""

    async def infer(
        self,
        model: str,
        feeds: Mapping[str, Any],
        outputs: Sequence[str] = (),
        timeout: float = 0.0,
    ) -> dict[str, Any]:
        """Run a model on arrays, as other deployments ask for it.

        Args:
            outputs: names of those that are wanted; all by default.
            timeout: in s; 0: that of the settings.

        Returns:
            Arrays by output.

        Raises:
            RequestError: it is refused, or fails.
        """
        with self.service.repository.find(model).in_use() as served:
            request = InferRequest(dict(feeds), list(outputs), timeout=timeout)
            response = await served.infer(request)
        return dict(response.results)

    async def check_health(self) -> None:
        """Called by Ray Serve now and then."""
        self._mirror.update()


class _Telling:
    """An ASGI application whose answers tell where they come from."""

    def __init__(self, application: Any, replica: Replica) -> None:
        self._application = application
        self._replica = replica
        self._node = replica.node.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await _nothing_to_start(receive, send)

        async def telling(message: Any) -> None:
            if message["type"] == "http.response.start":
                told = [(NODE_HEADER, self._node)]
                if eps := self._replica.eps(_model_in(scope)):
                    told.append((EPS_HEADER, eps.encode()))
                message = {**message, "headers": [*message.get("headers", ()), *told]}
            await send(message)

        await self._application(scope, receive, telling)
        return None


def _model_in(scope: Any) -> str:
    """The model that a path names."""
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    parts = path.split("/")
    return parts[3] if tuple(parts[:3]) == _IN_PATH and len(parts) > 3 else ""


async def _nothing_to_start(receive: Any, send: Any) -> None:
    for _ in range(2):
        message = await receive()
        await send({"type": f"{message['type']}.complete"})


def deployment(
    models: Mapping[str, SharedModel | str | os.PathLike[str]],
    settings: Settings | None = None,
    **options: Any,
) -> Application:
    """An application for ``ray.serve.run`` that serves models by the Open Inference
    Protocol over HTTP, as ``onnxplug serve`` does: with its batches, its limits for
    each replica, and its metrics.

    Args:
        models: name to what :func:`share` gave, or to a path that is there on all
            nodes.  A model that is to outlive the program is shared with a name.
        settings: of each replica: EPs or policy, batching, limits, token.  Where it
            listens is Ray Serve's to say.
        options: of the deployment, as of ``ray.serve.deployment``: ``num_replicas``,
            ``autoscaling_config``, ``ray_actor_options`` (see :func:`actor_options`).

    Raises:
        RequirementMissing: Ray Serve is not installed.
    """
    serve = _ray_serve()
    settings = Settings() if settings is None else settings
    given = {
        name: model if isinstance(model, SharedModel) else os.path.abspath(model)
        for name, model in models.items()
    }
    # requests wait where they can be joined, and are counted
    limit = settings.limits.queued + settings.batching.size * settings.instances
    options = {"name": "onnxplug", "max_ongoing_requests": limit, **options}
    replica = serve.deployment(serve.ingress()(Replica))
    application: Application = replica.options(**options).bind(given, settings)
    return application


def _ray_serve() -> Any:
    try:
        from ray import serve
    except ImportError as error:
        from onnxplug.errors import RequirementMissing

        raise RequirementMissing(
            f"Ray Serve cannot be imported: {error}; pip install 'onnxplug-ray[serve]'"
        ) from error
    return serve
