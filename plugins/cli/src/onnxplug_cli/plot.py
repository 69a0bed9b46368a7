"""Draws how long runs took, one box for each choice of EPs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from onnxplug_cli.failure import CommandFailed, UsageError

SUFFIXES: Final = (".png", ".svg")

_UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def check_plot(path: Path) -> None:
    """Refuse what cannot be drawn, before anything is measured.

    Raises:
        UsageError: *path* ends in none of :data:`SUFFIXES`.
        CommandFailed: what draws is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(
            f"--plot {path}: expected a file that ends in {' or '.join(SUFFIXES)}"
        )
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise CommandFailed(
            f"--plot needs matplotlib, which cannot be imported ({error}); "
            '`pip install "onnxplug-cli[plot]"` installs it'
        ) from error


def plot(
    path: Path, title: str, names: Sequence[str], seconds: Sequence[Sequence[float]]
) -> None:
    """Write the picture: boxes are of the middle half of runs, with the median.

    Args:
        names: of the choices of EPs.
        seconds: those of each run, by the same order.

    Raises:
        CommandFailed: it cannot be written.
    """
    # no window, and no state that outlasts the picture
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    median = sorted(min(seconds, key=sum))[len(min(seconds, key=sum)) // 2]
    scale, unit = next((each for each in _UNITS if median >= each[0]), _UNITS[-1])
    figure = Figure(figsize=(7, 1.4 + 0.6 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.boxplot(
        [[each / scale for each in runs] for runs in seconds],
        orientation="horizontal",
        tick_labels=list(names),
        whis=(1, 99),
        showfliers=False,
        widths=0.6,
        medianprops={"color": "black", "linewidth": 2},
    )
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel(f"{unit} for a run: 1 %, 25 %, median, 75 % and 99 %")
    axes.set_title(title)
    axes.grid(visible=True, axis="x", alpha=0.3)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise CommandFailed(f"cannot write {path}: {error}") from error
