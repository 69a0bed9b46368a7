"""How a server is set up; each default and limit stands here."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from onnxplug import SessionOptions
from onnxplug.errors import InvalidArgument

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What requests may take.

    Attributes:
        request_bytes: of a request, decompressed.
        json_bytes: of the JSON in it, which takes many times that when it is read; over
            gRPC of tensors whose elements are not raw.
        json_containers: lists and objects in that JSON.
        head_bytes: of the head of a request over HTTP, and of what it sends besides
            its body.
        inputs: in a request, and outputs that it asks for.
        rank: of a tensor.
        held_bytes: of all requests that are read or wait at the same time, and of
            answers that are sent.
        queued: requests of a model that wait.
        connections: that are open at the same time.
        body_seconds: for the head of a request to be read, and for its body.
        answer_seconds: for an answer to be taken.
    """

    request_bytes: int = 64 * MIB
    json_bytes: int = 8 * MIB
    json_containers: int = 1 << 18
    head_bytes: int = 1 << 16
    inputs: int = 1024
    rank: int = 64
    held_bytes: int = 512 * MIB
    queued: int = 256
    connections: int = 512
    body_seconds: float = 30.0
    answer_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Batching:
    """How requests are joined, where it is proven that each keeps its results.

    Attributes:
        size: positions of a run at most; 1: nothing is joined.
        delay: seconds that the first one waits for others; 0: those are joined that
            wait for another run to end.
    """

    size: int = 16
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Settings:
    """A server.

    Attributes:
        models: name to the path of a model, or of a folder of versions.
        repository: a folder of such folders, whose models can be loaded by name.
        providers, policy: of all sessions; see ``onnxplug.InferenceSession``.
        options: makes the options of a session.
        host, http_port, grpc_port: where it listens; port 0: any that is free,
            ``None``: not at all.
        token: what requests have to bear, if any.
        certificate, key: PEM files for TLS.
        instances: runs of a model at the same time.
        device_runs: runs of all models at the same time on devices of one kind, such
            as GPUs; 0: as many as there are.
        timeout: seconds that a request has if it does not say, none if 0.
        drain: seconds in which requests are finished when the server ends.
    """

    models: Mapping[str, Path] = field(default_factory=dict)
    repository: Path | None = None
    providers: Sequence[str] | None = None
    policy: str | None = None
    options: Callable[[], SessionOptions] = SessionOptions
    host: str = "127.0.0.1"
    http_port: int | None = 8000
    grpc_port: int | None = 8001
    token: str = ""
    certificate: Path | None = None
    key: Path | None = None
    instances: int = 1
    device_runs: int = 0
    batching: Batching = Batching()
    limits: Limits = Limits()
    timeout: float = 60.0
    drain: float = 30.0

    def check(self) -> None:
        """Check that the settings go together.

        Raises:
            InvalidArgument: they contradict each other, or are out of range.
        """
        if not self.models and self.repository is None:
            raise InvalidArgument(
                "there is nothing to serve; name a model, or a repository"
            )
        if (self.certificate is None) != (self.key is None):
            raise InvalidArgument("TLS needs both a certificate and its key")
        if self.http_port is None and self.grpc_port is None:
            raise InvalidArgument("the server has no port to listen at; expected one")
        for name, value, least in (
            ("instances", self.instances, 1),
            ("device_runs", self.device_runs, 0),
            ("batching.size", self.batching.size, 1),
            ("batching.delay", self.batching.delay, 0),
            ("timeout", self.timeout, 0),
            ("drain", self.drain, 0),
        ):
            if not value >= least:
                raise InvalidArgument(f"{name} is {value}; expected {least} or more")

    @property
    def is_reached(self) -> bool:
        """Whether others than this machine's programs reach it."""
        return not is_local(self.host)


def is_local(host: str) -> bool:
    """Whether *host*, a name or an address, is this machine for nobody but itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
