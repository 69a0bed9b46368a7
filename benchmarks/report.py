r"""Writes the tables and plots of the docs from measurements.

    python benchmarks/compare.py --json benchmarks/results/compare.json
    python benchmarks/vision.py --json benchmarks/results/vision.json
    python benchmarks/torch_ep.py --models lstm --threads 1 \
        --json benchmarks/results/torch/lstm.json
    python benchmarks/webgpu_ep.py --clock cpu --threads 2 --no-start \
        --json benchmarks/results/webgpu/lavapipe.json
    python benchmarks/report.py

``docs/explanation/performance.md`` has all files in ``benchmarks/results``, one section
for each; ``docs/reference/eps/torch.md`` those in ``torch`` there, as one table;
``docs/reference/eps/webgpu.md`` those in ``webgpu``, a table for each adapter; and
``docs/reference/eps/cuda.md`` those in ``cuda``, a section for each card, which
``cuda_ep.py`` measures.  What stands in the pages between two comments, and the plots,
are replaced.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from comparison.processes import OURS
from comparison.table import TINY

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "explanation" / "performance.md"
TORCH_PAGE = ROOT / "docs" / "reference" / "eps" / "torch.md"
WEBGPU_PAGE = TORCH_PAGE.with_name("webgpu.md")
CUDA_PAGE = TORCH_PAGE.with_name("cuda.md")
CARDS = RESULTS / "cuda"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

TITLES = {
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "torch": "PyTorch",
    "torch.compile": "`torch.compile`",
    "tinygrad": "tinygrad",
}
COLOURS = {"onnxruntime": "#4477aa", "openvino": "#cc7733"}


class Report(NamedTuple):
    """What one command measured, by the name of its file."""

    name: str
    found: Mapping[str, Any]

    @property
    def peers(self) -> Sequence[str]:
        """The other projects' runtimes."""
        return list(self.found["settings"]["peers"])

    @property
    def ours(self) -> Sequence[str]:
        """onnxplug's runtimes, the one by default first."""
        return [x for x in self.found["settings"]["runtimes"] if x not in self.peers]

    @property
    def threads(self) -> Mapping[str, Any]:
        """What was measured by number of threads, as text."""
        return dict(self.found["threads"])


def read(folder: Path = RESULTS) -> list[Report]:
    """All reports in *folder*."""
    return [
        Report(path.stem, json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(folder.glob("*.json"))
    ]


def beside_torch(reports: Sequence[Report]) -> str:
    """The networks that were measured beside PyTorch, each in a report of its own."""
    first = reports[0]
    (threads,) = first.threads
    models = {
        name: found
        for report in reports
        for name, found in report.threads[threads]["models"].items()
    }
    whole = Report(
        first.name, {**first.found, "threads": {threads: {"models": models}}}
    )
    machine = first.found["machine"]
    versions = machine["versions"]
    return "\n".join(
        [
            f"{machine['processor']}, one thread; PyTorch {versions['torch']}, "
            f"onnxplug at `{machine['commit']}`, Python {machine['python']}.",
            "",
            *_times(whole, threads),
            "",
        ]
    )


def on_webgpu(reports: Sequence[Report]) -> str:
    """The networks that were measured on each adapter, beside the peer and the CPU EP,
    and what a run of each does on the device."""
    return "\n".join(line for report in reports for line in _on_adapter(report))


def _on_adapter(report: Report) -> Iterator[str]:
    machine, settings = report.found["machine"], report.found["settings"]
    versions = machine["versions"]
    (threads,) = report.threads
    (ours, cpu), (peer,) = report.ours, report.peers
    clock = "time of the processor" if settings["clock"] == "cpu" else "time"
    yield (
        f"{machine['adapter']}; {machine['processor']}, {threads} threads, load before "
        f"of {machine['load'][0]}, {clock}; wgpu {versions['wgpu']}, {TITLES[peer]} "
        f"{versions[peer]}, onnxplug at `{machine['commit']}`, Python "
        f"{machine['python']}."
    )
    yield ""
    titles = ["network", "this EP", TITLES[peer], "ratio", "CPU EP", "error"]
    titles += ["the CPU EP's", "launches", "MB", "MFLOP", "nodes", "arithmetic"]
    yield from _head(titles)
    models = report.threads[threads]["models"]
    for name, found in models.items():
        seconds, on_it = found["seconds"], report.found["models"][name]
        errors = found.get("error", {})
        yield _line(
            [
                name,
                *(_time(seconds.get(each)) for each in (ours, peer)),
                _ratio(found["ratio"].get(ours, {}).get(peer)),
                _time(seconds.get(cpu)),
                *(_error(errors.get(each)) for each in (ours, cpu)),
                str(on_it["launches"]),
                f"{on_it['nbytes'] / 1e6:.3g}",
                f"{on_it['flops'] / 1e6:.3g}",
                *(f"{on_it[f'share of {what}']:.1%}" for what in titles[-2:]),
            ]
        )
    yield ""
    for name, found in models.items():
        for runtime, why in found["failed"].items():
            yield f"- {name} failed with {TITLES.get(runtime, runtime)}: `{why}`"
    if any(found["failed"] for found in models.values()):
        yield ""


def _error(found: Mapping[str, float] | None) -> str:
    return "–" if found is None else f"{found['largest']:.1e}"


def on_cards(reports: Sequence[Report]) -> str:
    """What was measured on GPUs of NVIDIA's, a section for each card."""
    if not reports:
        return "Nothing was measured yet.\n"
    return "\n".join(line for report in reports for line in _on_a_card(report))


def _on_a_card(report: Report) -> Iterator[str]:
    machine = report.found["machine"]
    versions, peaks = machine["versions"], machine["peaks of the card"]
    (threads,) = report.threads
    named = {"torch": "PyTorch", "onnxruntime-gpu": "ONNX Runtime"}
    peers = [
        f"{title} {versions[name]}"
        for name, title in named.items()
        if versions.get(name, "not installed") != "not installed"
    ]
    rates = ", ".join(f"{rate:.0f} {name}" for name, rate in peaks.items())
    yield f"### {machine['card']}"
    yield ""
    yield (
        f"CUDA {machine['CUDA of PyTorch']}; {', '.join(peers)}; onnxplug at "
        f"`{machine['commit']}`. At most {rates}."
    )
    yield ""
    yield from _times(report, threads)
    yield ""
    yield from _head(["model", "GFLOP", "share of the card's peak"])
    models = report.threads[threads]["models"]
    for name, found in models.items():
        flops, seconds = report.found["work"][name]["flops"], found["seconds"]
        ours = [seconds[each] for each in report.ours if each in seconds]
        rate = peaks.get(f"GFLOP/s {name.rsplit('-', 1)[-1]}")
        if flops and ours and rate:
            share = flops / min(ours) / 1e9 / rate
            yield _line([name, f"{flops / 1e9:.3g}", f"{share:.0%}"])
    yield ""
    for name, found in models.items():
        count, _, what = name.partition("-")
        if what == "launches":
            each = ", ".join(
                f"{TITLES.get(kind, kind)} {seconds / int(count) * 1e6:.1f} µs"
                for kind, seconds in found["seconds"].items()
            )
            yield f"A launch of a kernel that does next to nothing takes: {each}."
            yield ""
    if "sharing" in machine:
        yield from _on_a_shared_card(machine["sharing"])


def _on_a_shared_card(found: Mapping[str, Any]) -> Iterator[str]:
    """What sessions of a perceptron took together."""
    runs = found["runs a second of so many sessions"]
    each = ", ".join(f"{count}: {rate:.0f}" for count, rate in runs.items())
    yield f"Runs a second of sessions of a perceptron, by how many run at once: {each}."
    yield ""
    taken = {**found["MiB of the device"]}
    said = taken.pop("a limit of half the weights", "nothing")
    yield from _head(["session of a perceptron", "MiB of the device"])
    for name, size in taken.items():
        yield _line([name, f"{size:.0f}"])
    yield ""
    yield f"Of a limit of half the weights it is said: `{said}`"
    yield ""
    times = ", ".join(f"{name} {_time(x)}" for name, x in found["first runs"].items())
    yield f"Its first runs with other numbers of rows take, as a median: {times}."
    yield ""


def page(reports: Sequence[Report]) -> str:
    """What stands between the comments."""
    return "\n".join(line for report in reports for line in _section(report))


def _section(report: Report) -> Iterator[str]:
    yield f"## `{report.name}`"
    yield ""
    yield _conditions(report)
    for threads in report.threads:
        noun = "thread" if threads == "1" else "threads"
        yield f"\n### {threads} {noun}\n"
        yield f"![Ratios]({plot_name(report, threads)})\n"
        yield from _times(report, threads)
        yield ""
        yield from _means(report, threads)
    first = next(iter(report.threads))
    yield "\n### What bounds each model\n"
    yield from _bounds(report, first)
    if any("start" in x for x in report.threads[first]["models"].values()):
        yield "\n### To the first result, and memory\n"
        yield from _starts(report, first)
    yield ""


def _conditions(report: Report) -> str:
    machine, settings = report.found["machine"], report.found["settings"]
    versions = machine["versions"]
    precision = "bf16x3 on AMX" if machine["amx"] else "FMA; the machine has no AMX"
    options = settings["onnxplug's options"]
    if "fp32_matmul" in options:
        precision = f"`fp32_matmul={options['fp32_matmul']}`"
    threads = next(iter(report.threads))
    peaks = report.threads[threads]["peaks"]
    used = "one thread" if int(threads) == 1 else f"{threads} threads"
    cores = "one core" if machine["cores"] == 1 else f"{machine['cores']} cores"
    peers = ", ".join(f"{TITLES[peer]} {versions[peer]}" for peer in report.peers)
    return (
        f"{machine['processor']}, {cores}, load before of "
        f"{machine['load'][0]}; float32 by {precision}. At most "
        f"{peaks['GFLOP/s']:.0f} GFLOP/s and {peaks['GB/s']:.0f} GB/s with {used}. "
        f"Beside {peers}. onnxplug at `{machine['commit']}`, Python "
        f"{machine['python']}. {settings['repeats']} × "
        f"{settings['seconds per runtime and repeat']:g} s"
        + (", in time of the processor." if settings["clock"] == "cpu" else ".")
    )


def _times(report: Report, threads: str) -> Iterator[str]:
    titles = ["model", *report.ours]
    for peer in report.peers:
        titles += [TITLES[peer], *(f"ratio of {name}" for name in report.ours)]
    models = report.threads[threads]["models"]
    has_errors = any("error" in found for found in models.values())
    if has_errors:
        titles += ["error", "of the better peer's"]
    yield from _head(titles)
    for name, found in models.items():
        cells = [name, *(_time(found["seconds"].get(x)) for x in report.ours)]
        for peer in report.peers:
            cells.append(_time(found["seconds"].get(peer)))
            for ours in report.ours:
                cells.append(_ratio(found["ratio"].get(ours, {}).get(peer)))
        if has_errors:
            errors = found.get("error", {})
            theirs = [errors[x]["rms"] for x in report.peers if x in errors]
            ours_ = errors.get(OURS)
            cells.append(_error(ours_))
            cells.append(
                _ratio(ours_["rms"] / min(theirs)) if ours_ and theirs else "–"
            )
        yield _line(cells)


def _means(report: Report, threads: str) -> Iterator[str]:
    for kind, runtimes in report.threads[threads]["geometric means"].items():
        for ours, ratios in runtimes.items():
            if ours in report.ours:
                written = ", ".join(
                    f"{TITLES.get(name, name)} {_ratio(ratio)}"
                    for name, ratio in ratios.items()
                    if name not in report.ours
                )
                yield f"- geometric mean of {ours}, {kind}: {written}"


def _bounds(report: Report, threads: str) -> Iterator[str]:
    peaks = report.threads[threads]["peaks"]
    # the rate is that of instructions which multiply and add, so AMX may exceed it
    by_fma = next((name for name in report.ours if name == f"{OURS}, fma"), OURS)
    yield from _head(["model", "GFLOP", "MB", "least time", "by", "reached"])
    for name, found in report.threads[threads]["models"].items():
        work = report.found["work"][name]
        if not work["flops"]:  # it is in loops and branches
            continue
        by = {
            "arithmetic": work["flops"] / peaks["GFLOP/s"] / 1e9,
            "memory": work["nbytes"] / peaks["GB/s"] / 1e9,
        }
        bound = max(by, key=lambda kind: by[kind])
        taken = found["seconds"].get(by_fma)
        if taken is not None and taken < TINY:
            continue
        yield _line(
            [
                name,
                f"{work['flops'] / 1e9:.3g}",
                f"{work['nbytes'] / 1e6:.3g}",
                _time(by[bound]),
                bound,
                "–" if taken is None else f"{by[bound] / taken:.0%}",
            ]
        )


def _starts(report: Report, threads: str) -> Iterator[str]:
    models = report.threads[threads]["models"]
    names = [f"{ours}, cold" for ours in report.ours]
    names += [*report.ours, *report.peers]
    titles = [TITLES.get(name, name) for name in names]
    yield from _head(["model", *(f"{title}: s, MiB" for title in titles)])
    for model, found in models.items():
        cells = [model]
        for name in names:
            start = found.get("start", {}).get(name)
            cells.append(
                "–"
                if start is None
                else f"{start['start']:.2f}, {start['peak memory'] / 2**20:.0f}"
            )
        yield _line(cells)


def _head(titles: Sequence[str]) -> Iterator[str]:
    yield _line(titles)
    yield _line(["---", *["---:"] * (len(titles) - 1)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _ratio(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}×"


# the plot

WIDTH, LEFT, ROW, BAR = 720, 190, 34, 12


def plot_name(report: Report, threads: str) -> str:
    """The file's name, beside the page."""
    return f"performance-{report.name}-{threads}.svg"


def plot(report: Report, threads: str) -> str:
    """Bars of the ratio to each peer, model by model, as SVG; to the right is faster.

    The scale is logarithmic, so that twice and half are as far from 1.
    """
    models = {
        name: [found["ratio"].get(OURS, {}).get(peer) for peer in report.peers]
        for name, found in report.threads[threads]["models"].items()
    }
    known = [x for ratios in models.values() for x in ratios if x is not None]
    low = min([0.5, *known])
    high = max([2.0, *known])

    def x(ratio: float) -> float:
        span = math.log(high / low)
        return LEFT + (WIDTH - LEFT - 60) * math.log(ratio / low) / span

    height = ROW * (len(models) + 2)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for number, peer in enumerate(report.peers):
        at = LEFT + 180 * number
        lines.append(
            f'<rect x="{at}" y="8" width="12" height="12" fill="{COLOURS[peer]}"/>'
        )
        lines.append(f'<text x="{at + 18}" y="18">time of {TITLES[peer]} / ours</text>')
    for tick in (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8):
        if low <= tick <= high:
            colour = "#333333" if tick == 1 else "#dddddd"
            lines.append(
                f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{ROW}" '
                f'y2="{height - ROW + 8}" stroke="{colour}"/>'
            )
            lines.append(
                f'<text x="{x(tick):.1f}" y="{height - 10}" '
                f'text-anchor="middle">{tick:g}×</text>'
            )
    for number, (name, ratios) in enumerate(models.items()):
        y = ROW * (number + 1) + 6
        lines.append(
            f'<text x="{LEFT - 8}" y="{y + BAR + 4}" text-anchor="end">{name}</text>'
        )
        for bar, (peer, ratio) in enumerate(zip(report.peers, ratios, strict=True)):
            if ratio is None:
                continue
            begin, end = sorted((x(1), x(ratio)))
            top = y + BAR * bar
            lines.append(
                f'<rect x="{begin:.1f}" y="{top}" width="{end - begin:.1f}" '
                f'height="{BAR - 1}" fill="{COLOURS[peer]}"/>'
            )
            lines.append(
                f'<text x="{end + 4:.1f}" y="{top + BAR - 2}" font-size="10">'
                f"{ratio:.2f}</text>"
            )
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    """Write the pages' tables and the plots."""
    reports = read()
    _replace(PAGE, page(reports))
    _replace(TORCH_PAGE, beside_torch(read(RESULTS / "torch")))
    _replace(WEBGPU_PAGE, on_webgpu(read(RESULTS / "webgpu")))
    write_cards()
    for report in reports:
        for threads in report.threads:
            path = PAGE.with_name(plot_name(report, threads))
            path.write_text(plot(report, threads), encoding="utf-8")


def write_cards() -> None:
    """Write what was measured on GPUs of NVIDIA's."""
    _replace(CUDA_PAGE, on_cards(read(CARDS)))


def _replace(path: Path, measured: str) -> None:
    """Write *measured* between the comments in a page."""
    before, rest = path.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    path.write_text(f"{before}{BEGIN}\n{measured}{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
