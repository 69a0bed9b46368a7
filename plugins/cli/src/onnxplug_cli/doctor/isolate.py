"""Checks a plugin in a process of its own, which it may crash, end, or never end."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import IO, Final

from onnxplug.ep import Finding, Level
from onnxplug.escape import escape_lines
from onnxplug.plugins import PluginRecord, PluginState
from onnxplug.plugins.domains import Supplier
from onnxplug.plugins.names import short_name
from onnxplug.plugins.settings import BLOCK
from onnxplug_cli.doctor.checkup import Checkup, Crash, begin
from onnxplug_cli.doctor.compute import makers_of
from onnxplug_cli.doctor.domains import DomainCheckup, begin_domain
from onnxplug_cli.library import handle_of

_NO_OPTIONS: Final[Mapping[str, str]] = {}

_LOG: Final = logging.getLogger("onnxplug.cli")


def examine_isolated(
    record: PluginRecord,
    timeout: float,
    libraries: Sequence[str] = (),
    options: Mapping[str, str] = _NO_OPTIONS,
) -> Checkup:
    """What a process found that had *timeout* seconds, and registered *libraries*.

    Args:
        options: of the EP.
    """
    words = ["ep", record.name, json.dumps(dict(options)), *libraries]
    code, lines, written = _examined(record, words, timeout)
    checkup = begin(record)
    for line in lines:
        try:
            checkup = Checkup.from_json(json.loads(line))
        except ValueError:  # the last line was cut off
            break
    unfinished = bool(checkup.doing) or not lines
    if code == 0 and not unfinished:
        return checkup
    return _crashed(checkup, code, timeout, written, unfinished=unfinished)


def try_library_isolated(target: str, timeout: float) -> Checkup | None:
    """What became of a process that registered the library *target*, and had *timeout*
    seconds; ``None`` if nothing did, whether the library can be used or not."""
    code, _, written = _examined(target, ["library", target], timeout)
    if code == 0:
        return None
    begun = Checkup(
        ep=handle_of(target),
        state=str(PluginState.FOUND),
        distribution=target,
        version="",
        doing="being loaded",
    )
    return replace(
        _crashed(begun, code, timeout, written, unfinished=True),
        remedy=f"tell the makers of {target}",
    )


def examine_domain_isolated(supplier: Supplier, timeout: float) -> DomainCheckup:
    """What a process found that had *timeout* seconds."""
    words = ["domain", supplier.domain, supplier.name]
    code, lines, written = _examined(supplier, words, timeout)
    with contextlib.suppress(ValueError):  # the last line was cut off
        if code == 0 and lines:
            return DomainCheckup.from_json(json.loads(lines[-1]))
    return replace(
        begin_domain(supplier),
        state=str(Crash.TIMED_OUT if code is None else Crash.CRASHED),
        reason=_reason(code, timeout, written, "being loaded"),
        remedy=f"tell the makers of {supplier.name}; "
        f"{BLOCK}={supplier.domain} leaves it out",
    )


def _examined(
    plugin: object, words: Sequence[str], timeout: float
) -> tuple[int | None, list[str], str]:
    """The exit code, ``None`` when the time was up; the lines; what else it wrote."""
    # files, and no pipes: those would stay open for as long as the plugin's own
    # children live
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        code = _run(words, out, err, timeout)
        lines = _read(out).splitlines()
        written = _read(err).strip()
    if written:
        _LOG.info("%s wrote:\n%s", plugin, escape_lines(written))
    return code, lines, written


def _run(
    words: Sequence[str], out: IO[bytes], err: IO[bytes], timeout: float
) -> int | None:
    """The exit code; ``None`` when the time was up."""
    command = [
        sys.executable,
        "-P",  # no plugin comes from the current directory
        *("-X", "faulthandler"),  # reports in which line it crashed
        *("-m", "onnxplug_cli.doctor.child", *words),
    ]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        start_new_session=True,  # to end its children with it
    )
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            _kill(process)
            process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def _crashed(
    checkup: Checkup,
    code: int | None,
    timeout: float,
    written: str,
    *,
    unfinished: bool,
) -> Checkup:
    if not unfinished:
        text = f"{_how(code, timeout)} when the process ended, all checks done"
        remedy = makers_of(checkup.distribution)
        finding = Finding(level=Level.WARNING, message=text, remedy=remedy)
        return replace(checkup, findings=(*checkup.findings, finding))
    return replace(
        checkup,
        state=str(Crash.TIMED_OUT if code is None else Crash.CRASHED),
        reason=_reason(code, timeout, written, checkup.doing or "starting"),
        remedy=f"{makers_of(checkup.distribution)}; "
        f"{BLOCK}={short_name(checkup.ep)} leaves it out",
        doing="",
    )


def _reason(code: int | None, timeout: float, written: str, doing: str) -> str:
    place = _place(written)
    return f"{_how(code, timeout)} while {doing}" + (f"\n{place}" if place else "")


def _how(code: int | None, timeout: float) -> str:
    if code is None:
        return f"it took more than {timeout:g} s"
    if code < 0:
        try:
            return f"it was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"it was killed by signal {-code}"
    # Windows reports crashes as large codes, which are known by their hexadecimal form
    return f"it ended the process with exit code {code if code < 256 else hex(code)}"


def _place(written: str) -> str:
    """Where it crashed, or the error that ended it, by what it wrote last."""
    lines = written.splitlines()
    frames = [line.strip() for line in lines if line.startswith("  File ")]
    if "Fatal Python error" in written and frames:
        return frames[0]
    return lines[-1] if lines else ""
