"""Gradient-boosted trees, and networks, that describe the detectors of a crossing."""

from __future__ import annotations

from .conftest import SameOnBoth

# thirty minutes of a controller's events, which the wheel has, too
CROSSING = """
import pathlib
import atspm_detector

folder = pathlib.Path(atspm_detector.__file__).parent
events = folder / "data" / "sample_events.parquet"
tables = atspm_detector.predict(str(events), return_phases=True)
for name, table in zip(("detectors", "phases"), tables):
    numbers = table.select_dtypes("float")
    results[f"{name}, numbers"] = numbers.to_numpy()
    rest = table.drop(columns=numbers.columns).astype(str)
    results[f"{name}, words"] = rest.to_numpy().astype(np.str_)
results["functions"] = tables[0]["function_pred"].to_numpy().astype(np.str_)
"""


def test_atspm_detector_describes_the_same_detectors(same_on_both: SameOnBoth) -> None:
    """What it says are probabilities, distances and speeds, and words with reasons."""
    tolerances = {"detectors, numbers": 1e-5, "phases, numbers": 1e-5}
    results = same_on_both("atspm_detector", CROSSING, tolerances)
    assert len(results["functions"]) == 17
    assert {"Advance", "Presence"} <= set(results["functions"])
