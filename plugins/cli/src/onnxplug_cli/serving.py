"""``onnxplug serve``: serves models by the Open Inference Protocol.

The server is of ``onnxplug-serve``, which need not be installed.
"""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onnxplug.escape import escape
from onnxplug_cli.failure import CommandFailed, UsageError
from onnxplug_cli.opening import add_ep_arguments, session_options
from onnxplug_cli.text import say
from onnxplug_cli.values import assignment, count

if TYPE_CHECKING:
    from onnxplug import SessionOptions
    from onnxplug_serve import Server, Settings

_EPILOG: Final = """\
examples:
  onnxplug serve resnet50.onnx
  onnxplug serve detector=models/yolo.onnx encoder=models/bert.onnx --ep openvino,cpu
  onnxplug serve --repository models --port 9000 --token-file token.txt
"""

_TCP_PORTS: Final = 65535


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "serve",
        parents=[common],
        help="serve models over HTTP and gRPC",
        description="Serve models by the Open Inference Protocol (KServe v2), over "
        "HTTP and gRPC, until a signal ends it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model",
        metavar="[NAME=]MODEL",
        nargs="*",
        help="an ONNX file, or a folder of versions (1/model.onnx, …); its name is the "
        "file's, unless it is said",
    )
    parser.add_argument(
        "--repository",
        metavar="DIR",
        type=Path,
        help="a folder of folders of versions, one for each model",
    )
    add_ep_arguments(parser)
    _add_addresses(parser)
    _add_load(parser)
    parser.set_defaults(command=_serve)


def _add_addresses(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("where it listens")
    where.add_argument(
        "--host", default="127.0.0.1", help="the address (default: 127.0.0.1)"
    )
    for name, what, default in (("port", "HTTP", 8000), ("grpc-port", "gRPC", 8001)):
        where.add_argument(
            f"--{name}",
            metavar="N",
            type=_port,
            default=default,
            help=f"of {what}; 0: any that is free; none: not at all "
            f"(default: {default})",
        )
    where.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help="what requests have to bear: Authorization: Bearer TOKEN",
    )
    where.add_argument("--certificate", metavar="FILE", type=Path, help="PEM, for TLS")
    where.add_argument("--key", metavar="FILE", type=Path, help="the key of that")


def _add_load(parser: argparse.ArgumentParser) -> None:
    load = parser.add_argument_group("how requests are run")
    load.add_argument(
        "--instances",
        metavar="N",
        type=count,
        default=1,
        help="runs of a model at the same time (default: 1)",
    )
    load.add_argument(
        "--device-runs",
        metavar="N",
        type=count,
        default=0,
        help="runs of all models at the same time on devices of one kind, such as "
        "GPUs; 0: as many as there are (default: 0)",
    )
    load.add_argument(
        "--threads",
        metavar="N",
        type=count,
        default=0,
        help="that a run may use; 0: all processors (default: 0)",
    )
    load.add_argument(
        "--batch",
        metavar="N",
        type=count,
        default=16,
        help="positions of requests that are joined in a run, where it is proven that "
        "each keeps its results; 1: none are (default: 16)",
    )
    load.add_argument(
        "--batch-delay",
        metavar="MS",
        type=float,
        default=0.0,
        help="that a request waits for others to join (default: 0, only while others "
        "run)",
    )
    load.add_argument(
        "--queue",
        metavar="N",
        type=count,
        default=256,
        help="requests of a model that wait, beyond which others are refused "
        "(default: 256)",
    )
    load.add_argument(
        "--timeout",
        metavar="S",
        type=float,
        default=60.0,
        help="that a request has if it does not say; 0: for ever (default: 60)",
    )
    load.add_argument(
        "--max-request",
        metavar="MIB",
        type=count,
        default=64,
        help="the largest request (default: 64)",
    )
    load.add_argument(
        "--drain",
        metavar="S",
        type=float,
        default=30.0,
        help="in which requests are finished when it ends (default: 30)",
    )


def _port(text: str) -> int | None:
    if text == "none":
        return None
    if not (text.isascii() and text.isdecimal()) or int(text[:9]) > _TCP_PORTS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no port; expected 0 to {_TCP_PORTS}, or none"
        )
    return int(text)


def _serve(arguments: argparse.Namespace) -> int:
    try:
        from onnxplug_serve import Server
    except ImportError as error:
        raise CommandFailed(
            f"the server cannot be imported: {error}; it is a distribution of its own: "
            "pip install onnxplug-serve"
        ) from error
    import asyncio
    import logging

    logger = logging.getLogger("onnxplug.serve")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False  # the command shows the rest of the log

    async def serve() -> None:
        server = Server(_settings(arguments))
        await server.run(lambda: _say_where(server))

    asyncio.run(serve())
    return 0


def _settings(arguments: argparse.Namespace) -> Settings:
    from onnxplug_serve import Batching, Limits, Settings
    from onnxplug_serve.settings import MIB

    size = arguments.max_request * MIB
    return Settings(
        models=_models(arguments.model),
        repository=_folder(arguments.repository),
        providers=arguments.ep,
        policy=arguments.policy,
        options=functools.partial(_options, arguments),
        host=arguments.host,
        http_port=arguments.port,
        grpc_port=arguments.grpc_port,
        token=_token(arguments.token_file),
        certificate=arguments.certificate,
        key=arguments.key,
        instances=arguments.instances,
        device_runs=arguments.device_runs,
        batching=Batching(arguments.batch, arguments.batch_delay / 1e3),
        limits=Limits(
            request_bytes=size,
            held_bytes=max(8 * size, Limits().held_bytes),
            queued=arguments.queue,
        ),
        timeout=arguments.timeout,
        drain=arguments.drain,
    )


def _options(arguments: argparse.Namespace) -> SessionOptions:
    options = session_options(arguments)
    options.intra_op_num_threads = arguments.threads
    return options


def _models(said: list[str]) -> dict[str, Path]:
    models: dict[str, Path] = {}
    for text in said:
        if "=" in text and not Path(text).exists():
            name, path = assignment(text)
        else:
            name, path = Path(text).stem, text
        if name in models:
            raise UsageError(
                f"two models are called {name!r}; name one otherwise: NAME={path}"
            )
        if not Path(path).exists():
            raise CommandFailed(f"there is no model at {escape(path)}")
        models[name] = Path(path)
    return models


def _folder(path: Path | None) -> Path | None:
    if path is not None and not path.is_dir():
        raise CommandFailed(f"the repository {escape(path)} is no folder")
    return path


def _token(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(
            f"cannot read the token in {escape(path)}: {error}"
        ) from error
    if not token:
        raise CommandFailed(f"there is no token in {escape(path)}")
    return token


def _say_where(server: Server) -> None:
    settings = server.settings
    scheme = "http" if settings.certificate is None else "https"
    if server.http_port is not None:
        say(f"HTTP: {scheme}://{settings.host}:{server.http_port}/v2")
    if server.grpc_port is not None:
        say(f"gRPC: {settings.host}:{server.grpc_port}")
