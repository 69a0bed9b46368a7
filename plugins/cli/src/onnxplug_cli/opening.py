"""Opens the session that a command line asks for: its model, its EPs, their options."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onnxplug_cli.failure import UsageError
from onnxplug_cli.library import add_library_argument
from onnxplug_cli.progress import Progress
from onnxplug_cli.values import assignment, names

if TYPE_CHECKING:
    from onnxplug import InferenceSession, SessionOptions
    from onnxplug.session.request import SessionRequest


_PLACE: Final = "session.place"
_REQUIRE: Final = "session.require"


def add_session_arguments(
    parser: argparse.ArgumentParser, *, several: bool = False
) -> Any:
    """Declare the model, and which EPs run it; the group of what excludes ``--ep``.

    Args:
        several: see :func:`add_ep_arguments`.
    """
    add_model_argument(parser)
    return add_ep_arguments(parser, several=several)


def add_ep_arguments(parser: argparse.ArgumentParser, *, several: bool = False) -> Any:
    """Declare which EPs run models; the group of what excludes ``--ep``.

    Args:
        several: ``--ep`` may be repeated, once for each session.
    """
    choice = parser.add_mutually_exclusive_group()
    again = "again: another session's" if several else "may be repeated"
    choice.add_argument(
        "--ep",
        metavar="NAME[,NAME]",
        type=names,
        action="append" if several else "extend",
        help=f"the EPs to use, best first, such as cuda,cpu (default: cpu); {again}",
    )
    choice.add_argument(
        "--policy",
        metavar="NAME",
        help="choose the EPs by a policy, such as prefer_gpu",
    )
    add_ep_option_argument(parser)
    add_pin_arguments(parser)
    add_library_argument(parser)
    return choice


def add_pin_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which nodes are for which EP."""
    for option, entry, what in (
        ("--place", _PLACE, "offer nodes to this EP only"),
        ("--require", _REQUIRE, "fail unless this EP runs nodes"),
    ):
        parser.add_argument(
            option,
            metavar="PATTERN=EP",
            type=functools.partial(_pin, entry),
            action="append",
            default=[],
            help=f"{what}, such as op:Softmax=cpu or name:/encoder/*=cpu; "
            "may be repeated",
        )


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the model."""
    parser.add_argument("model", metavar="MODEL", help="an ONNX file")


def add_ep_option_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the options of EPs."""
    parser.add_argument(
        "--ep-option",
        metavar="EP.KEY=VALUE",
        type=_ep_option,
        action="append",
        default=[],
        help="an option of an EP, such as cuda.device_id=1; may be repeated",
    )


def _pin(entry: str, text: str) -> str:
    """*text*, if it is what the config entry *entry* may be."""
    from onnxplug import SessionOptions
    from onnxplug.errors import OptionError

    try:
        SessionOptions().add_session_config_entry(entry, text)
    except OptionError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _ep_option(text: str) -> tuple[str, str, str]:
    name, value = assignment(text)
    ep, dot, key = name.partition(".")
    if not (ep and dot and key):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form EP.KEY=VALUE")
    return ep, key, value


def open_session(
    arguments: argparse.Namespace,
    providers: Sequence[str] | None = None,
    *,
    model: Any = None,
    trace: str = "",
    dims: Sequence[tuple[str, int]] = (),
) -> InferenceSession:
    """The session.

    Args:
        arguments: what was said.
        providers: are used instead of what was said, if given.
        model: is used instead of what was said, if given.
        trace: what the name of a trace's file begins with; none is written if empty.
        dims: sizes of symbolic dimensions.

    Raises:
        UsageError: the policy or an option does not exist, or does not fit.
        OnnxplugError: the model or an EP cannot be used.
    """
    from onnxplug import InferenceSession
    from onnxplug.errors import OptionError
    from onnxplug.plugins import registry

    registry.records()  # so that a wrong variable is not taken for a wrong option
    try:
        options = session_options(arguments)
        if trace:
            options.profile_file_prefix = trace
            options.enable_profiling = True
        for name, size in dims:
            options.add_free_dimension_override_by_name(name, size)
        with Progress(f"loading {Path(arguments.model).name} …"):
            session = InferenceSession(
                arguments.model if model is None else model,
                options,
                providers=arguments.ep if providers is None else list(providers),
                policy=arguments.policy if providers is None else None,
            )
    except OptionError as error:
        said = (arguments.policy, *arguments.ep_option, *arguments.place)
        if not any((*said, *arguments.require)):
            raise
        raise UsageError(str(error)) from error
    return session


def session_request(
    arguments: argparse.Namespace, providers: Sequence[str] | None
) -> SessionRequest:
    """What :func:`open_session` asks for, for a session of another process."""
    from onnxplug.session.request import SessionRequest, read_source

    return SessionRequest(
        read_source(arguments.model),
        session_options(arguments),
        None if providers is None else list(providers),
        None,
        arguments.policy if providers is None else None,
        (),
    )


def check_ep_options(
    arguments: argparse.Namespace, sessions: Sequence[InferenceSession]
) -> None:
    """Refuse options of EPs that no session uses: they would say nothing.

    Raises:
        UsageError: there is one.
    """
    from onnxplug.plugins import registry
    from onnxplug.selection.known import canonical

    used = {name for session in sessions for name in session.get_providers()}
    for ep, key, _ in arguments.ep_option:
        if canonical(ep, registry) not in used:
            raise UsageError(
                f"--ep-option {ep}.{key} is for {ep}, which is not used; "
                f"used are {', '.join(sorted(used))}"
            )


def session_options(arguments: argparse.Namespace) -> SessionOptions:
    """The options of a session: those of EPs, and the pins, that were said."""
    from onnxplug import SessionOptions
    from onnxplug.plugins import registry
    from onnxplug.selection.known import canonical

    options = SessionOptions()
    for ep, key, value in arguments.ep_option:
        # config entries reach the EP whoever chose it: the user, or a policy
        name = canonical(ep, registry).lower()
        options.add_session_config_entry(f"ep.{name}.{key}", value)
    for entry, said in ((_PLACE, arguments.place), (_REQUIRE, arguments.require)):
        if said:
            options.add_session_config_entry(entry, "; ".join(said))
    return options
