"""The command line of the comparisons."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import onnx
from machine import describe_machine
from runtimes import CLOCKS

from .bounds import measured_peaks, work
from .measure import Setting, measure
from .processes import OURS, Files, Runtime
from .table import header, means, row, starts, summary

PEERS = (Runtime("onnxruntime", "onnxruntime"), Runtime("openvino", "openvino"))

Writer: TypeAlias = Callable[[Path], Files]
"""Writes a model and its inputs into a folder, unless it keeps them elsewhere."""


def main(
    description: str,
    models: Mapping[str, Writer],
    words: Sequence[str] | None = None,
    *,
    ours: Sequence[Runtime] = (Runtime(OURS, OURS),),
    peers: Sequence[Runtime] = PEERS,
    of_a_model: Callable[[Files], Mapping[str, Any]] | None = None,
    of_the_machine: Callable[[], Mapping[str, Any]] = dict,
) -> None:
    """Measure, print, and write JSON if that is asked for.

    Args:
        description: the script's, for ``--help``.
        models: what may be measured.
        words: arguments, by default the command's.
        ours: onnxplug, in one way or in several, of which the table has ratios of the
            first.
        peers: what it may be compared with.
        of_a_model, of_the_machine: what else the report has of them.
    """
    arguments = _parse(description, models, peers, words)
    runtimes = _runtimes(arguments, ours, peers)
    cores = sorted(os.sched_getaffinity(0))
    threads = [int(count) for count in arguments.threads.split(",")]
    for count in threads:
        if count > len(cores):
            print(f"{count} threads are left out: there are {len(cores)} cores")
    threads = [count for count in threads if count <= len(cores)]
    machine = describe_machine() | dict(of_the_machine())
    print(json.dumps(machine, indent=2, ensure_ascii=False))
    with tempfile.TemporaryDirectory() as name:
        setting = Setting(
            runtimes,
            arguments.repeats,
            arguments.seconds,
            cores,
            Path(name),
            arguments.clock,
        )
        files = {
            model: models[model](Path(name)) for model in arguments.models or models
        }
        report = _compare(files, threads, setting, not arguments.no_start)
        if of_a_model is not None:
            report["models"] = {
                name: dict(of_a_model(each)) for name, each in files.items()
            }
    if arguments.json:
        about = {
            "runtimes": [runtime.name for runtime in runtimes],
            "peers": [runtime.name for runtime in runtimes if runtime.is_peer],
            "repeats": setting.repeats,
            "seconds per runtime and repeat": setting.seconds,
            "clock": setting.clock,
            "onnxplug's options": _options(arguments),
        }
        found = {"machine": machine, "settings": about, **_rounded(report)}
        text = json.dumps(found, indent=2, ensure_ascii=False)
        arguments.json.write_text(text + "\n", encoding="utf-8")


def _rounded(found: Any) -> Any:
    """*found* with four digits of each number that was measured."""
    if isinstance(found, dict):
        return {key: _rounded(value) for key, value in found.items()}
    if isinstance(found, list):
        return [_rounded(value) for value in found]
    return float(f"{found:.4g}") if isinstance(found, float) else found


def _parse(
    description: str,
    models: Mapping[str, Writer],
    peers: Sequence[Runtime],
    words: Sequence[str] | None,
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=list(models), metavar="NAME")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--peers", default=",".join(each.name for each in peers))
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--against", action="append", default=[], metavar="CHECKOUT")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--no-start", action="store_true")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(words)


def _runtimes(
    arguments: argparse.Namespace, ours: Sequence[Runtime], peers: Sequence[Runtime]
) -> list[Runtime]:
    """onnxplug, by FMA too where it would use AMX, other checkouts of it, and peers."""
    options = _options(arguments)
    runtimes = [
        Runtime(each.name, each.kind, {**each.options, **options}) for each in ours
    ]
    if describe_machine()["amx"] and "fp32_matmul" not in options:
        # of the CPU EP's options
        fma = options | {"fp32_matmul": "fma"}
        runtimes += [
            Runtime(f"{each.name}, fma", OURS, fma)
            for each in ours
            if each.kind == OURS
        ]
    for checkout in arguments.against:
        python = Path(checkout) / ".venv" / "bin" / "python"
        if not python.exists():
            sys.exit(f"there is no {python}: run make .venv/runtime.stamp there")
        commit = _commit(checkout)
        runtimes += [
            Runtime(
                f"{each.name} {commit}",
                each.kind,
                {**each.options, **options},
                python.absolute(),
            )
            for each in ours
        ]
    known = {peer.name: peer for peer in peers}
    for name in filter(None, arguments.peers.split(",")):
        if name not in known:
            sys.exit(f"{name!r} is none of {', '.join(known)}")
        elsewhere = known[name].python != Path(sys.executable)
        if elsewhere or importlib.util.find_spec(known[name].kind):
            runtimes.append(known[name])
        else:
            print(f"{name} is not installed, and left out; pip install {name}")
    return runtimes


def _options(arguments: argparse.Namespace) -> dict[str, str]:
    return dict(option.split("=", 1) for option in arguments.option)


def _commit(checkout: str) -> str:
    command = ["git", "-C", checkout, "describe", "--always", "--dirty"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or Path(checkout).name


def _compare(
    files: Mapping[str, Files], threads: Sequence[int], setting: Setting, start: bool
) -> dict[str, Any]:
    """Measure and print; all that was found."""
    report: dict[str, Any] = {
        "work": {
            name: work(onnx.load(file.model))._asdict() for name, file in files.items()
        },
        "threads": {},
    }
    peers = [runtime.name for runtime in setting.runtimes if runtime.is_peer]
    for count in threads:
        print(f"\n{count} thread(s)\n{header(setting.runtimes)}", flush=True)
        results: dict[str, Any] = {}
        # what a start takes hardly depends on the number of threads
        with_starts = start and count == threads[0]
        for name, file in files.items():
            results[name] = measure(file, count, setting, with_starts)
            print(row(name, results[name], setting.runtimes), flush=True)
        found = summary(list(results.values()), peers)
        print(means(found), flush=True)
        if with_starts:
            print(f"\nprocess start to first result, {count} thread(s)")
            for name, result in results.items():
                print(starts(name, result), flush=True)
        report["threads"][count] = {
            "peaks": measured_peaks(setting.cores[:count]),
            "models": results,
            "geometric means": found,
        }
    return report
