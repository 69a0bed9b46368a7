"""Settings of the whole process by functions of ONNX Runtime."""

from __future__ import annotations

from typing import Any

import onnxplug
from onnxplug.ep import Level, raise_interruption
from onnxplug.errors import InvalidArgument
from onnxplug_onnxruntime.leniency import log_without_effect

_threads = 0


def get_build_info() -> str:
    """What this is, in one line."""
    return f"ORT Build Info: {onnxplug.get_build_info()}"


def get_version_string() -> str:
    """The version of ONNX Runtime whose names these are."""
    from onnxplug_onnxruntime import __version__

    return __version__


def enable_telemetry_events() -> None:
    """Does nothing: there is no telemetry."""


def disable_telemetry_events() -> None:
    """Does nothing: there is no telemetry."""


def has_collective_ops() -> bool:
    """False: no EP has operators over several processes."""
    return False


def preload_dlls(
    cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: Any = None
) -> None:
    """Have EPs load the libraries that they compute with, for all in the process to
    find these; what is not found is logged.

    An EP loads what it needs by itself, so this matters to other packages alone.

    Args:
        cuda, cudnn, msvc: which libraries.
        directory: where to look first; empty or ``None``: where the EPs look anyway.
    """
    # which take long to import, and no session needs
    import logging
    from pathlib import Path

    from onnxplug.plugins import registry

    logger = logging.getLogger("onnxplug")
    wanted = {"cuda": cuda, "cudnn": cudnn, "msvc": msvc}
    names = {name for name, is_wanted in wanted.items() if is_wanted}
    folder = Path(directory) if directory else None
    for factory in registry.automatic_factories():
        try:
            for finding in factory.preload(names, folder):
                is_fine = finding.level is Level.OK
                level = logging.INFO if is_fine else logging.WARNING
                logger.log(level, "%s: %s", factory.name, finding.message)
        # whatever a plugin raises; its EP may work all the same
        except Exception as error:  # noqa: BLE001
            raise_interruption(error)
            logger.warning("%s loads no libraries: %s", factory.name, error)


def set_default_logger_verbosity(verbosity: int) -> None:
    """Does nothing: there is one level below info; see set_default_logger_severity."""


def set_global_thread_pool_sizes(
    intra_op_num_threads: int = 0, inter_op_num_threads: int = 0
) -> None:
    """Set the threads of sessions that are not to have their own.

    Those are the sessions with ``use_per_session_threads`` false.

    Raises:
        InvalidArgument: a number is below 0.
    """
    global _threads
    if intra_op_num_threads < 0 or inter_op_num_threads < 0:
        raise InvalidArgument(
            f"the numbers of threads are {intra_op_num_threads} and "
            f"{inter_op_num_threads}; expected ≥ 0"
        )
    if inter_op_num_threads > 1:
        log_without_effect("inter_op_num_threads has no effect in onnxplug")
    _threads = int(intra_op_num_threads)


def global_threads() -> int:
    """What :func:`set_global_thread_pool_sizes` set; 0: nothing."""
    return _threads


def print_debug_info() -> None:
    """Print what is installed; ``onnxplug doctor`` tells more."""
    print(get_build_info())
    for record in onnxplug.get_plugins():
        print(f"{record.name}: {record.distribution} {record.version}, {record.state}")
