"""Options of sessions and of runs, in ONNX Runtime's words."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from onnxplug.cancellation import Flag, RunFlag
from onnxplug.entries import (
    DEFAULTS,
    SESSION,
    check_run_entry,
    check_session_entry,
)
from onnxplug.errors import LoadCancelled, OptionError, OptionTypeError
from onnxplug.levels import ExecutionMode, ExecutionOrder, GraphOptimizationLevel
from onnxplug.paths import why_no_path
from onnxplug.strictness import STRICT, Strictness
from onnxplug.suggest import did_you_mean

if TYPE_CHECKING:
    import numpy as np

    from onnxplug.context_data import ReadFunction
    from onnxplug.ep import Domain, EpDevice
    from onnxplug.replacements import HostTensor
    from onnxplug.selection import ProviderRequest


class SessionOptions:
    """Options of one session.

    Attributes:
        intra_op_num_threads: threads that a node may use; 0 leaves it to the EP.
        graph_optimization_level: see :class:`GraphOptimizationLevel`.
        optimized_model_filepath: where to write the prepared model; empty: nowhere.
        log_severity_level: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal, of this
            session's logger; -1 leaves the logger alone.  Verbose shows the placement.
        logid: the end of the logger's name, ``onnxplug.session.<logid>``.
        enable_profiling: record where time goes; see ``end_profiling``.
        profile_file_prefix: what the name of the trace's file begins with.

    The other attributes are those of ONNX Runtime and have no effect; setting one to
    anything but its default warns so.
    """

    _WITHOUT_EFFECT: Final = {
        "enable_cpu_mem_arena": True,
        "enable_mem_pattern": True,
        "enable_mem_reuse": True,
        "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
        "execution_order": ExecutionOrder.DEFAULT,
        "inter_op_num_threads": 0,
        "log_verbosity_level": 0,
        "use_deterministic_compute": False,
        "use_per_session_threads": True,
    }

    _TYPES: Final[Mapping[str, type]] = {
        "intra_op_num_threads": int,
        "graph_optimization_level": GraphOptimizationLevel,
        "optimized_model_filepath": str,
        "log_severity_level": int,
        "logid": str,
        "enable_profiling": bool,
        "profile_file_prefix": str,
    }

    _PATHS: Final = ("optimized_model_filepath", "profile_file_prefix")

    _is_plain = True
    """All that options of this very class are is in their attributes: two of equal ones
    make equal sessions.  A class that adds nothing to that says so itself."""

    intra_op_num_threads: int
    graph_optimization_level: GraphOptimizationLevel
    optimized_model_filepath: str
    log_severity_level: int
    logid: str
    enable_profiling: bool
    profile_file_prefix: str
    _config: dict[str, str]
    _free_dimensions: dict[str, int]
    _denoted_dimensions: dict[str, int]
    _initializers: dict[str, np.ndarray[Any, Any]]
    _external_initializers: dict[str, np.ndarray[Any, Any]]
    _external_files: dict[str, memoryview]
    _requests: list[ProviderRequest]
    _domains: list[Domain]
    _policy: Any
    _cancellation: Flag
    _ep_context_reader: tuple[ReadFunction, int] | None
    _strictness: Strictness

    def __init__(self) -> None:
        values = self.__dict__
        values.update(self._WITHOUT_EFFECT)
        values.update(
            intra_op_num_threads=0,
            graph_optimization_level=GraphOptimizationLevel.ORT_ENABLE_ALL,
            optimized_model_filepath="",
            log_severity_level=-1,
            logid="",
            enable_profiling=False,
            profile_file_prefix="onnxruntime_profile_",
            _config={},
            _free_dimensions={},
            _denoted_dimensions={},
            _initializers={},
            _external_initializers={},
            _external_files={},
            _requests=[],
            _domains=[],
            _policy=None,
            _cancellation=Flag(),
            _ep_context_reader=None,
            _strictness=STRICT,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        default = self._WITHOUT_EFFECT.get(name)
        expected = self._TYPES.get(name, type(default))
        if default is None and name not in self._TYPES:
            known = [*self._TYPES, *self._WITHOUT_EFFECT]
            raise AttributeError(
                f"SessionOptions has no attribute {name!r}{did_you_mean(name, known)}"
            )
        if getattr(value, "ndim", None) == 0:  # one of numpy's numbers
            value = value.item()
        if expected is bool and isinstance(value, int) and value in (0, 1):
            value = bool(value)
        if not isinstance(value, expected) or (
            isinstance(value, bool) and expected is not bool
        ):
            raise OptionTypeError(
                f"SessionOptions.{name} is {value!r}; expected {expected.__name__}"
            )
        if name in self._PATHS and (why := why_no_path(str(value))):
            raise OptionError(
                f"SessionOptions.{name} is {value!r}, {why}; expected a path"
            )
        if default not in (None, value):
            self._strictness.without_effect(
                f"SessionOptions.{name} has no effect in onnxplug"
            )
        self.__dict__[name] = value

    def snapshot(self) -> SessionOptions:
        """A copy that later changes of these options do not reach.

        The flag that cancels is one for both.
        """
        options = type(self).__new__(type(self))
        options.__dict__.update(
            (name, value.copy() if isinstance(value, dict | list) else value)
            for name, value in self.__dict__.items()
        )
        return options

    def __getstate__(self) -> dict[str, Any]:
        files = {name: view.tobytes() for name, view in self._external_files.items()}
        return {**self.__dict__, "_external_files": files}

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = state["_external_files"].items()
        views = {name: memoryview(content) for name, content in files}
        self.__dict__.update({**state, "_external_files": views})

    # ending what takes too long

    def set_load_cancellation_flag(self, value: bool) -> None:
        """Set to true, from any thread, to end the making of sessions by these options.

        It raises :class:`~onnxplug.errors.LoadCancelled` then.  Sessions that are made
        already run on; what they would have to make anew, for outputs or EPs that they
        were not made with, is cancelled too.
        """
        self._cancellation.up = bool(value)

    def check_load(self) -> None:
        """Raise :class:`LoadCancelled` when the session is not wanted any more."""
        if self._cancellation.up:
            raise LoadCancelled(
                "making the session was cancelled, as "
                "SessionOptions.set_load_cancellation_flag(True) was called; call it "
                "with False to make another session by these options"
            )

    @property
    def is_load_cancelled(self) -> bool:
        """Whether sessions of these options are to be made no further."""
        return self._cancellation.up

    @contextlib.contextmanager
    def cancelled_by(self, is_over: Callable[[], bool]) -> Iterator[SessionOptions]:
        """Options like these; *is_over*, and no flag, meanwhile ends making sessions.

        Afterwards they have the flag of these.
        """
        options = self.snapshot()
        flag = RunFlag(self._cancellation, is_over)
        options.__dict__["_cancellation"] = flag
        try:
            yield options
        finally:
            flag.is_over = None

    # config entries

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set a config entry.

        An entry of ONNX Runtime that has no effect here warns.  Whether an EP has
        the entry ``ep.<ep>.<key>`` is checked when a session is made.

        Raises:
            OptionError: there is no such entry, or it cannot have this value.
            OptionTypeError: *key* is no text, or *value* neither a text nor a number.
        """
        text = _text(key, value)
        check_session_entry(key, text, self._strictness)
        self._config[key] = text

    def get_session_config_entry(self, key: str) -> str:
        """The value of a config entry, its default when it was not set.

        Raises:
            OptionError: it was not set and has no default here.
        """
        try:
            return self.config[key]
        except KeyError:
            raise OptionError(
                f"SessionOptions does not have configuration with key: {key}; it was "
                f"not set{did_you_mean(key, SESSION)}"
            ) from None

    @property
    def config(self) -> dict[str, str]:
        """All config entries that are set or have a default."""
        return {**DEFAULTS, **self._config}

    # the model

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix the size of the dimension that the model calls *name*.

        A name that the model does not have is an error when the session is created.

        Raises:
            OptionError: the size is not positive.
        """
        self._free_dimensions[name] = _size(f"dimension {name!r}", size)

    def add_free_dimension_override_by_denotation(
        self, denotation: str, size: int
    ) -> None:
        """Fix the size of the inputs' dimensions that denote *denotation*.

        What no dimension denotes is an error when the session is created.

        Raises:
            OptionError: the size is not positive.
        """
        what = f"the dimension that denotes {denotation!r}"
        self._denoted_dimensions[denotation] = _size(what, size)

    def add_initializer(self, name: str, value: HostTensor) -> None:
        """Use *value* for the initializer *name*; it is kept alive.

        Raises:
            OptionTypeError: it is no ``OrtValue``.
        """
        from onnxplug.replacements import array_of  # which few programs need

        self._initializers[name] = array_of(name, value)

    def add_external_initializers(
        self, names: Sequence[str], values: Sequence[HostTensor]
    ) -> None:
        """Use *values* for the initializers *names*, whose files need not exist.

        Raises:
            OptionError: the two are not of one length; ``OptionTypeError`` if one is no
                list, or has what is no name or no ``OrtValue``.
        """
        from onnxplug.replacements import arrays_by_name  # which few programs need

        self._external_initializers.update(arrays_by_name(names, values))

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        """Read external data of the files *names* from *buffers* instead.

        Raises:
            OptionError: the three are not of one length, or a buffer has not as many
                bytes; ``OptionTypeError`` if one is no list, or has what is no name, no
                buffer or no length.
        """
        from onnxplug.replacements import files_by_name  # which few programs need

        self._external_files.update(files_by_name(names, buffers, lengths))

    def set_ep_context_data_read_func(
        self, read_func: ReadFunction, max_data_size: int
    ) -> None:
        """Let *read_func* give the files of a compiled model, in place of the disk.

        Args:
            read_func: called with the name that the model has for the file, and with an
                :class:`~onnxplug.OrtEpContextDataBuffer` to write its content to.
            max_data_size: bytes that a file may have.

        Raises:
            OptionError: *max_data_size* is below 0.
        """
        if max_data_size < 0:
            raise OptionError(f"max_data_size is {max_data_size}; expected ≥ 0")
        self.__dict__["_ep_context_reader"] = (read_func, int(max_data_size))

    def clear_ep_context_data_read_func(self) -> None:
        """Undo :meth:`set_ep_context_data_read_func`."""
        self.__dict__["_ep_context_reader"] = None

    # operators

    def register_custom_ops_library(self, library: Any) -> None:
        """Give sessions of these options operators that they do not know.

        Args:
            library: the path of a Python file, or the name of a module, that supplies
                domains as an installed distribution does; a
                :class:`~onnxplug.ep.Domain`; or a function, ``onnx.FunctionProto`` or
                one of ``onnxscript``.

        Raises:
            NoSuchFile: there is no file at the path.
            PluginLoadError: it is native, raises, or supplies nothing.
        """
        from onnxplug.custom_operators import read_library  # seldom wanted

        self._domains.extend(read_library(library))

    # EPs

    def add_provider(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        """Add an EP, after those added before.

        Raises:
            PluginError: it is not installed or cannot be loaded.
            OptionError: an option is not valid.
        """
        # EPs are seldom added here, and all that finds them takes long to import
        from onnxplug.plugins import registry
        from onnxplug.selection import parse_options, provider
        from onnxplug.selection.available import find_factory

        factory = find_factory(name, registry)
        parse_options(
            factory.name, factory.options, options or {}, strictness=self._strictness
        )
        # it was asked for by hand, and raises when it fails
        self._requests.append(provider(name, options=options, error_on_failure=True))

    def add_provider_for_devices(
        self, ep_devices: Sequence[EpDevice], options: Mapping[str, Any] | None = None
    ) -> None:
        """Add an EP on chosen devices, all of one EP.

        Raises:
            OptionError: there is no device, they are of several EPs, or an option is
                not valid.
        """
        from onnxplug.selection import for_devices

        given = dict(options or {})
        self._requests.append(
            for_devices(ep_devices, given, strictness=self._strictness)
        )

    def has_providers(self) -> bool:
        """Whether an EP or a policy was set."""
        return bool(self._requests) or self._policy is not None

    def set_provider_selection_policy(self, policy: Any) -> None:
        """Choose EPs by a policy: its name, its enum, or a function."""
        self.__dict__["_policy"] = policy

    def set_provider_selection_policy_delegate(
        self, delegate: Callable[..., Sequence[EpDevice]]
    ) -> None:
        """Choose EPs by a function of ONNX Runtime's four arguments."""
        from onnxplug.selection.delegate import adapt_delegate

        self.__dict__["_policy"] = adapt_delegate(delegate)

    # what a session asks

    @property
    def strictness(self) -> Strictness:
        """What is done about entries that nobody has, and options without effect."""
        return self._strictness

    @property
    def requests(self) -> list[ProviderRequest]:
        """The EPs that were added."""
        return list(self._requests)

    @property
    def domains(self) -> tuple[Domain, ...]:
        """The operators that are given to sessions."""
        return tuple(self._domains)

    @property
    def policy(self) -> Any:
        """The policy that was set; ``None`` when none was."""
        return self._policy

    @property
    def free_dimensions(self) -> dict[str, int]:
        """Sizes by the names of dimensions."""
        return dict(self._free_dimensions)

    @property
    def denoted_dimensions(self) -> dict[str, int]:
        """Sizes by what dimensions of inputs denote."""
        return dict(self._denoted_dimensions)

    @property
    def initializers(self) -> dict[str, np.ndarray[Any, Any]]:
        """Arrays that replace initializers of the model."""
        return self._initializers | self._external_initializers

    @property
    def external_files(self) -> dict[str, memoryview]:
        """Files of external data that are in memory."""
        return dict(self._external_files)

    @property
    def ep_context_reader(self) -> Callable[[str], memoryview] | None:
        """Gives files of a compiled model by their names; ``None``: the disk does."""
        if self._ep_context_reader is None:
            return None
        from onnxplug.context_data import reader  # which few programs set

        return reader(*self._ep_context_reader)

    @property
    def disabled_passes(self) -> set[str]:
        """Names of passes over the graph that are left out."""
        names = self.config["optimization.disable_specified_optimizers"].split(";")
        disabled = {name for name in names if name}
        if self.graph_optimization_level is GraphOptimizationLevel.ORT_DISABLE_ALL:
            disabled |= {"fold", "branches", "duplicates", "eliminate"}
        return disabled

    @property
    def threads(self) -> int:
        """How many threads a node may use; 0 leaves it to the EP."""
        return self.intra_op_num_threads or int(
            self.config["session.intra_op_num_threads"]
        )


def _text(key: Any, value: Any) -> str:
    """The value of a config entry."""
    if not (isinstance(key, str) and isinstance(value, str | int | float)):
        raise OptionTypeError(
            f"the config entry {key!r} is given {value!r}; expected a text for each of "
            "the two"
        )
    text = str(value)
    if "\0" in text:
        raise OptionError(
            f"the config entry {key!r} is given {text!r}; a value has no NUL "
            "character, at which engines end a text"
        )
    return text


def _size(what: str, size: Any) -> int:
    try:
        number = operator.index(size)
    except TypeError:
        raise OptionTypeError(
            f"{what} is given size {size!r}; expected a whole number"
        ) from None
    if number < 1:
        raise OptionError(f"{what} is given size {size}; expected ≥ 1")
    return number


class RunOptions:
    """Options of one run.

    Attributes:
        terminate: set to true, from any thread, to end the runs that use these options
            before their next step.
        timeout: seconds after its start at which a run is cancelled; ``None``: never.
        logid, log_severity_level, log_verbosity_level: as in ONNX Runtime; runs log
            nothing of their own.
    """

    __slots__ = (
        "_config",
        "_linked_to",
        "_strictness",
        "log_severity_level",
        "log_verbosity_level",
        "logid",
        "only_execute_path_to_fetches",
        "terminate",
        "timeout",
    )

    def __init__(self) -> None:
        self.terminate = False
        self.timeout: float | None = None
        self.logid = ""
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.only_execute_path_to_fetches = False
        self._config: dict[str, str] = {}
        self._linked_to: RunOptions | None = None
        self._strictness = STRICT

    def linked(self) -> RunOptions:
        """Options like these, which can also be terminated by themselves."""
        options = RunOptions()
        options.timeout = self.timeout
        options._config = dict(self._config)
        options._linked_to = self
        options._strictness = self._strictness
        return options

    @property
    def is_terminated(self) -> bool:
        """Whether these options, or those they are linked to, end their runs."""
        linked = self._linked_to
        return self.terminate or (linked is not None and linked.is_terminated)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Set a config entry: one of the host's, or a run option of an EP.

        One of ONNX Runtime that has no effect here warns.  Whether an EP of a session
        has a run option of this name, and of this value, is checked by each run.

        Raises:
            OptionError: an entry of the host's cannot have this value.
            OptionTypeError: *key* is no text, or *value* neither a text nor a number.
        """
        text = _text(key, value)
        check_run_entry(key, text, self._strictness)
        self._config[key] = text

    def get_run_config_entry(self, key: str) -> str:
        """The value of a config entry.

        Raises:
            OptionError: it was not set.
        """
        try:
            return self._config[key]
        except KeyError:
            raise OptionError(
                f"RunOptions does not have configuration with key: {key}; set are "
                f"{sorted(self._config)}"
            ) from None

    @property
    def strictness(self) -> Strictness:
        """What is done about entries that nobody has, and those without effect."""
        return self._strictness

    @property
    def config(self) -> Mapping[str, str]:
        """The config entries that are set."""
        return self._config
