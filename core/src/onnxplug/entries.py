"""The host's own config entries of sessions and of runs, in ONNX Runtime's words.

Those of EPs are declared by EPs: see ``onnxplug.selection.entries`` for sessions, and
``onnxplug.run.entries`` for runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from onnxplug.authoring.record import Record
from onnxplug.errors import OptionError
from onnxplug.paths import why_no_path
from onnxplug.strictness import STRICT, Strictness
from onnxplug.suggest import did_you_mean


class Entry(Record):
    """A config entry.

    Attributes:
        default: what holds where it is not set; ``None``: nothing does.
        accepts: a test of its values; ``None``: any will do.
        expected: what they have to be, in words.
        effect: it has one here.
    """

    default: str | None = None
    accepts: Callable[[str], object] | None = None
    expected: str = ""
    effect: bool = True


PAD: Final = "session.pad_dimensions"

BUCKETS_ARE: Final = (
    "dimensions and the sizes that they are padded to, such as 'batch=1,4,16;seq=128'"
)


def buckets(text: str) -> dict[str, tuple[int, ...]] | None:
    """The sizes, ascending, that each dimension is padded to, as an entry says;
    ``None`` if it is not of that form."""
    found: dict[str, tuple[int, ...]] = {}
    for part in filter(str.strip, text.split(";")):
        name, equals, sizes = part.rpartition("=")
        numbers = [size.strip() for size in sizes.split(",")]
        if not (name.strip() and equals and all(n.isdecimal() for n in numbers)):
            return None
        if name.strip() in found or not all(map(int, numbers)):
            return None
        found[name.strip()] = tuple(sorted(set(map(int, numbers))))
    return found


PLACE: Final = "session.place"
"""Nodes that are offered to one EP only."""

REQUIRE: Final = "session.require"
"""Nodes that one EP has to run."""

KINDS_OF_PATTERN: Final = ("name:", "op:")
"""What a pattern of nodes is compared with, as it begins."""

PINS_ARE: Final = (
    "patterns of nodes and their EPs, such as 'op:Softmax=cpu; name:/encoder/*=cuda', "
    "where each pattern begins with 'op:' (an operator, of another domain than ONNX's "
    "as 'op:com.microsoft.Gelu') or 'name:' (a name), and has '*' for any characters "
    "and '?' for one"
)


def pins(text: str) -> list[tuple[str, str]] | None:
    """Patterns of nodes and the EP of each, as an entry says; ``None`` if it is not of
    that form.

    A name may have '=' and ';' in it: an EP's has not, and a pattern begins with its
    kind.
    """
    parts: list[str] = []
    for piece in text.rstrip("; \n").split(";"):
        if piece.lstrip().startswith(KINDS_OF_PATTERN):
            parts.append(piece)
        elif parts:
            parts[-1] += f";{piece}"
        elif piece:
            return None
    found = []
    for part in parts:
        pattern, _, ep = (each.strip() for each in part.rpartition("="))
        if not ep or ";" in ep or pattern in ("", *KINDS_OF_PATTERN):
            return None
        if pattern.startswith("op:") and any(each in pattern for each in "=; "):
            return None
        found.append((pattern, ep))
    return found


_PATH: Final = Entry(
    "", lambda value: not why_no_path(value), "a path that systems can encode"
)
_FLAG: Final = Entry("0", ("0", "1").__contains__, "'0' or '1'")
_IGNORED: Final = Entry(effect=False)
_PINS: Final = Entry("", lambda value: pins(value) is not None, PINS_ARE)

CHECK: Final = "ONNXPLUG_CHECK"
"""The variable that has all results looked at closely in every run."""

CHECK_RESULTS: Final = "session.check_results"
"""The same of one session."""

CALIBRATE: Final = "session.calibrate"
"""By it a session of the policy ``max_performance`` times EPs where that was not done
before."""

EXTERNAL_FOLDER: Final = "session.model_external_initializers_file_folder_path"
"""The folder that a model's files of external data are in."""

SERVE: Final = "session.serve_while_compiling"
"""By it another EP serves runs while an EP compiles for their shapes."""

RELEASED_ONLY: Final = "session.allow_released_opsets_only"
"""Without it a model of a newer opset is read as one of the newest known."""

SESSION: Final[Mapping[str, Entry]] = {
    CHECK_RESULTS: _FLAG._replace(default=""),
    CALIBRATE: _FLAG,
    "session.disable_cpu_ep_fallback": _FLAG,
    EXTERNAL_FOLDER: _PATH,
    SERVE: _FLAG,
    PAD: Entry("", lambda value: buckets(value) is not None, BUCKETS_ARE),
    PLACE: _PINS,
    REQUIRE: _PINS,
    "session.record_ep_graph_assignment_info": _FLAG,
    "session.intra_op_num_threads": Entry("0", str.isdecimal, "a number of threads"),
    "session.nchwc_block_size": Entry("", ("", "8", "16").__contains__, "'8' or '16'"),
    "session.use_memory_mapped_model": _FLAG._replace(default="1"),
    "optimization.disable_specified_optimizers": Entry(""),
    "ep.context_enable": _FLAG,
    "ep.context_file_path": _PATH,
    "ep.context_embed_mode": _FLAG,
    "ep.context_node_name_prefix": Entry(""),
    "ep.context_model_external_initializers_file_name": _PATH,
    "ep.share_ep_contexts": _FLAG,
    "ep.stop_share_ep_contexts": _FLAG,
    "session.disable_model_compile": _FLAG,
    "session.fail_on_suboptimal_compiled_model": _FLAG,
    "ep.enable_weightless": _FLAG._replace(effect=False),
    RELEASED_ONLY: _FLAG._replace(default="1"),
    "session.optimized_model_external_initializers_file_name": _PATH,
    "session.optimized_model_external_initializers_min_size_in_bytes": Entry(
        "1024", str.isdecimal, "a number of bytes"
    ),
}
"""Those of sessions; more that have no effect are in :mod:`onnxplug.foreign`."""

GRAPH_ID: Final = "gpu_graph_id"
"""Tells captured graphs apart; -1 has a run not captured."""

NOT_SYNCHRONISED: Final = "disable_synchronize_execution_providers"
"""By it the caller says to wait for a run's work itself."""

RUN: Final[Mapping[str, Entry]] = {
    NOT_SYNCHRONISED: _FLAG,
    GRAPH_ID: Entry(
        "0", lambda value: value == "-1" or value.isdecimal(), "a whole number from -1"
    ),
    "memory.enable_memory_arena_shrinkage": _IGNORED,
}
"""Those of runs."""

DEFAULTS: Final[Mapping[str, str]] = {
    key: entry.default
    for key, entry in SESSION.items()
    if entry.effect and entry.default is not None
}
"""What holds of sessions' entries with an effect where they are not set."""


def check_session_entry(key: str, value: str, strictness: Strictness = STRICT) -> None:
    """Check an entry of a session.

    Of an EP's entry, ``ep.<ep>.<key>``, only the form is checked: which EPs there are,
    and what they have, is known when a session is made.

    Args:
        strictness: is told where there is no such entry, or it has no effect.

    Raises:
        OptionError: it cannot have this value, or there is no such entry.
    """
    if key in SESSION:
        _check("session config entry", key, value, SESSION[key], strictness)
    elif key.startswith("ep.dynamic."):
        strictness.unknown(
            key,
            f"session config entry {key!r} is one of those that change while a session "
            "lives; set it by set_ep_dynamic_options, once there is a session",
        )
    elif not is_of_ep(key):
        from onnxplug.foreign import SESSION_ENTRIES  # which few programs set

        if key not in SESSION_ENTRIES:
            near = did_you_mean(key, [*SESSION, *SESSION_ENTRIES])
            with_effect = ", ".join(DEFAULTS)
            strictness.unknown(
                key,
                f"there is no session config entry {key!r}{near}; those with an effect "
                f"are {with_effect}, and ep.<ep>.<key>",
            )
            return
        ignored = _IGNORED._replace(default=SESSION_ENTRIES[key])
        _check("session config entry", key, value, ignored, strictness)


def check_run_entry(key: str, value: str, strictness: Strictness = STRICT) -> None:
    """Check an entry of a run if it is the host's.

    Args:
        strictness: is told where it has no effect.

    Raises:
        OptionError: it cannot have this value.
    """
    if key in RUN:
        _check("run config entry", key, value, RUN[key], strictness)


def is_of_ep(key: str) -> bool:
    """Whether an entry of a session is an EP's by its form, ``ep.<ep>.<key>``."""
    prefix, _, rest = key.partition(".")
    ep, _, name = rest.partition(".")
    return prefix == "ep" and bool(ep and name)


def _check(
    what: str, key: str, value: str, entry: Entry, strictness: Strictness
) -> None:
    if entry.accepts is not None and not entry.accepts(value):
        raise OptionError(f"{what} {key!r} is {value!r}; expected {entry.expected}")
    if value != entry.default and not entry.effect:
        strictness.without_effect(f"{what} {key!r} has no effect in onnxplug")
