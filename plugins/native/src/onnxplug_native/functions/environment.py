"""Statuses, loggers, key-value pairs, session options and run options."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Mapping
from typing import Any, Final

from onnxplug_native.interface.codes import Code, InterfaceError
from onnxplug_native.interface.handles import Handle, find
from onnxplug_native.interface.host import implements, table
from onnxplug_native.interface.memory import (
    put_int,
    put_pointer,
    put_size,
)
from onnxplug_native.interface.status import Status
from onnxplug_native.interface.table import VERSION


class KeyValuePairs(Handle):
    """A mapping of texts to texts.

    Attributes:
        pairs: it.
    """

    def __init__(self, pairs: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.pairs = dict(pairs or {})
        self._arrays: Any = None

    def arrays(self) -> tuple[int, int]:
        """The addresses of arrays of the keys and the values."""
        keys = [self.text(key) for key in self.pairs]
        values = [self.text(value) for value in self.pairs.values()]
        kind = ctypes.c_void_p * max(1, len(keys))
        # earlier ones stay, as a library may still look at them
        self._arrays = (kind(*keys), kind(*values), self._arrays)
        return ctypes.addressof(self._arrays[0]), ctypes.addressof(self._arrays[1])


class Logger(Handle):
    """A logger.

    Attributes:
        logger: where messages go.
    """

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self.logger = logger


class SessionOptions(Handle):
    """What a library may ask of a session's options.

    Attributes:
        entries: the config entries, with the EP's options as ``ep.<ep>.<option>``.
    """

    def __init__(self, entries: Mapping[str, str]) -> None:
        super().__init__()
        self.entries = dict(entries)


GRAPH_ID: Final = "gpu_graph_id"
"""The config entry of a run that tells the number under which to capture it."""

NOT_CAPTURED: Final = -1
"""The number of runs that are not captured."""


class RunOptions(Handle):
    """What a library may ask of the options of a run.

    Attributes:
        entries: the run's config entries.
    """

    def __init__(self, entries: Mapping[str, str]) -> None:
        super().__init__()
        self.entries = dict(entries)


class CustomOpDomain(Handle):
    """A domain of a library's own operators, which are noted and not used.

    Attributes:
        name: the domain's.
        operators: addresses of what describes them.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.operators: list[int] = []


class EpContextConfig(Handle):
    """How compiled models are read and written: by the host, so it has no functions."""


# Statuses


@implements("CreateStatus")
def create_status(code: int, message: bytes | None) -> int:
    """A new status, which belongs to whoever is given it."""
    return Status(code, (message or b"").decode("utf-8", "replace")).address


@implements("GetErrorCode")
def get_error_code(status: int) -> int:
    """A status's code."""
    return find(Status, status).code


@implements("GetErrorMessage")
def get_error_message(status: int) -> int:
    """What a status says."""
    found = find(Status, status)
    return found.text(found.message)


@implements("ReleaseStatus")
def release_status(status: int | None) -> None:
    """The end of a status."""
    release(status)


def release(address: int | None) -> None:
    """Release whatever is at *address*; nothing, if nothing is."""
    found = find(Handle, address, quiet=True)
    if found is not None:
        found.release()


for _name in (
    "TypeInfo",
    "TensorTypeAndShapeInfo",
    "MapTypeInfo",
    "SequenceTypeInfo",
    "ModelMetadata",
    "MemoryInfo",
    "Value",
    "OpAttr",
    "KernelInfo",
    "ValueInfo",
    "Node",
    "Graph",
    "KeyValuePairs",
    "ExternalInitializerInfo",
    "CustomOpDomain",
):
    implements(f"Release{_name}")(release)

for _name in (
    "EpDevice",
    "HardwareDevice",
    "KernelRegistry",
    "KernelDefBuilder",
    "KernelDef",
    "OpSchema",
    "EpContextConfig",
    "ProfilingEvent",
):
    implements(f"Release{_name}", "OrtEpApi")(release)


# Operators of libraries' own


@implements("CreateCustomOpDomain")
def create_custom_op_domain(name: bytes | None, out: int) -> None:
    """A new domain without operators."""
    domain = CustomOpDomain((name or b"").decode("utf-8", "replace"))
    put_pointer(out, domain.address)


@implements("CustomOpDomain_Add")
def add_custom_op(domain: int, operator: int | None) -> None:
    """Note an operator of a domain."""
    if not operator:
        raise InterfaceError(Code.INVALID_ARGUMENT, "there is no operator")
    find(CustomOpDomain, domain).operators.append(operator)


# The interface itself


@implements("GetEpApi")
def get_ep_api() -> int:
    """The entries for EPs."""
    return table("OrtEpApi").address


@implements("GetModelEditorApi")
def get_model_editor_api() -> int:
    """The entries that make models."""
    return table("OrtModelEditorApi").address


@implements("GetCompileApi")
def get_compile_api() -> int:
    """The entries that compile models, of which none is there."""
    return table("OrtCompileApi").address


@implements("GetInteropApi")
def get_interop_api() -> int:
    """The entries that import memory, of which none is there."""
    return table("OrtInteropApi").address


_BUILD: Final = ctypes.create_string_buffer(
    f"onnxplug-native, as ORT {VERSION}".encode()
)


@implements("GetBuildInfoString")
def get_build_info_string() -> int:
    """Who this is."""
    return ctypes.addressof(_BUILD)


@implements("GetTrainingApi")
def get_training_api(*_: int) -> None:
    """Null: there is no training, as in most of ONNX Runtime's builds."""


@implements("GetExperimentalFunction")
def get_experimental_function(_: bytes | None) -> None:
    """Null: experimental functions may always be missing."""


# Key-value pairs


@implements("CreateKeyValuePairs")
def create_key_value_pairs(out: int) -> None:
    """No pairs yet."""
    put_pointer(out, KeyValuePairs())


@implements("AddKeyValuePair")
def add_key_value_pair(pairs: int, key: bytes | None, value: bytes | None) -> None:
    """Add a pair, or replace its value; without a key nothing is added."""
    if key:
        found = find(KeyValuePairs, pairs).pairs
        found[key.decode("utf-8", "replace")] = (value or b"").decode(
            "utf-8", "replace"
        )


@implements("GetKeyValue")
def get_key_value(pairs: int, key: bytes | None) -> int | None:
    """The value of a key; null if there is none."""
    found = find(KeyValuePairs, pairs)
    value = found.pairs.get((key or b"").decode("utf-8", "replace"))
    return None if value is None else found.text(value)


@implements("GetKeyValuePairs")
def get_key_value_pairs(pairs: int, keys: int, values: int, count: int) -> None:
    """All of them, as arrays that live as long as the pairs."""
    found = find(KeyValuePairs, pairs)
    for out, address in zip((keys, values), found.arrays(), strict=True):
        put_pointer(out, address)
    put_size(count, len(found.pairs))


@implements("RemoveKeyValuePair")
def remove_key_value_pair(pairs: int, key: bytes | None) -> None:
    """Remove a pair, if it is there."""
    find(KeyValuePairs, pairs).pairs.pop((key or b"").decode("utf-8", "replace"), None)


@implements("GetEnvConfigEntries", "OrtEpApi")
def get_env_config_entries(out: int) -> None:
    """The environment's config entries, of which there are none."""
    put_pointer(out, KeyValuePairs())


# Loggers


_SEVERITIES: Final = (
    logging.DEBUG,
    logging.INFO,
    logging.WARNING,
    logging.ERROR,
    logging.CRITICAL,
)


@implements("Logger_LogMessage")
def log_message(
    logger: int,
    severity: int,
    message: bytes | None,
    path: bytes | str | None,
    line: int,
    function: bytes | None,
) -> None:
    """A record of the logger; where the library wrote it is in its ``extra``."""
    level = _SEVERITIES[min(max(severity, 0), len(_SEVERITIES) - 1)]
    where = path.decode("utf-8", "replace") if isinstance(path, bytes) else path or ""
    find(Logger, logger).logger.log(
        level,
        "%s",
        (message or b"").decode("utf-8", "replace"),
        extra={
            "native_path": where,
            "native_line": line,
            "native_function": (function or b"").decode("utf-8", "replace"),
        },
    )


@implements("Logger_GetLoggingSeverityLevel")
def get_logging_severity_level(logger: int, out: int) -> None:
    """The least severity that is recorded."""
    level = find(Logger, logger).logger.getEffectiveLevel()
    severity = sum(each < level for each in _SEVERITIES)
    put_int(out, min(severity, len(_SEVERITIES) - 1))


# Session options and run options


def copy_text(text: str | bytes, out: int | None, size: int, what: str) -> None:
    """Copy *text* and its end to *out*, as far as ``*size`` bytes; or just its size.

    Raises:
        InterfaceError: it does not fit.
    """
    data = (text.encode() if isinstance(text, str) else text) + b"\0"
    if not size:
        raise InterfaceError(Code.INVALID_ARGUMENT, "where to put the size is null")
    room = ctypes.c_size_t.from_address(size)
    given, room.value = room.value, len(data)
    if not out:
        return
    if given < len(data):
        raise InterfaceError(
            Code.INVALID_ARGUMENT,
            f"{what} takes {len(data)} bytes, and there is room for {given}",
        )
    ctypes.memmove(out, data, len(data))


@implements("HasSessionConfigEntry")
def has_session_config_entry(options: int, key: bytes | None, out: int) -> None:
    """Whether an entry is set."""
    entries = find(SessionOptions, options).entries
    put_int(out, (key or b"").decode("utf-8", "replace") in entries)


@implements("GetSessionConfigEntry")
def get_session_config_entry(
    options: int, key: bytes | None, out: int | None, size: int
) -> None:
    """The value of an entry."""
    name = (key or b"").decode("utf-8", "replace")
    entries = find(SessionOptions, options).entries
    if name not in entries:
        raise InterfaceError(
            Code.INVALID_ARGUMENT, f"the session has no config entry {name!r}"
        )
    copy_text(entries[name], out, size, f"the config entry {name!r}")


@implements("GetSessionOptionsConfigEntries")
def get_session_options_config_entries(options: int, out: int) -> None:
    """A copy of all entries, which the library releases."""
    put_pointer(out, KeyValuePairs(find(SessionOptions, options).entries))


@implements("GetMemPatternEnabled")
def get_mem_pattern_enabled(options: int, out: int) -> None:
    """No: the host plans no memory for libraries."""
    find(SessionOptions, options)
    put_int(out, 0)


@implements("GetSessionExecutionMode")
def get_session_execution_mode(options: int, out: int) -> None:
    """Partitions run one after the other."""
    find(SessionOptions, options)
    put_int(out, 0)


@implements("SessionOptionsGetWeightlessSourceModelBuffer", "OrtEpApi")
def get_weightless_source_model_buffer(options: int, data: int, size: int) -> None:
    """None: compiled models have their weights."""
    find(SessionOptions, options)
    put_pointer(data, None)
    put_size(size, 0)


@implements("SessionOptionsGetEpContextConfig", "OrtEpApi")
def get_ep_context_config(options: int, out: int) -> None:
    """How compiled models are read and written."""
    find(SessionOptions, options)
    put_pointer(out, EpContextConfig())


@implements("EpContextConfigGetEpContextDataReadFunc", "OrtEpApi")
def get_ep_context_data_read_func(
    config: int, function: int, state: int, limit: int
) -> None:
    """None."""
    find(EpContextConfig, config)
    put_pointer(function, None)
    put_pointer(state, None)
    put_size(limit, 0)


@implements("EpContextConfigGetEpContextDataWriteFunc", "OrtEpApi")
def get_ep_context_data_write_func(config: int, function: int, state: int) -> None:
    """None."""
    find(EpContextConfig, config)
    put_pointer(function, None)
    put_pointer(state, None)


@implements("GetRunConfigEntry")
def get_run_config_entry(options: int, key: bytes | None) -> int | None:
    """The value of an entry; null if it is not set."""
    found = find(RunOptions, options)
    value = found.entries.get((key or b"").decode("utf-8", "replace"))
    return None if value is None else found.text(value)


@implements("RunOptionsGetRunTag")
def get_run_tag(options: int, out: int) -> None:
    """Runs have no tags here."""
    put_pointer(out, find(RunOptions, options).text(""))


@implements("RunOptionsGetRunLogVerbosityLevel")
@implements("RunOptionsGetRunLogSeverityLevel")
def get_run_log_level(options: int, out: int) -> None:
    """Runs have no levels of their own here."""
    find(RunOptions, options)
    put_int(out, 0)
