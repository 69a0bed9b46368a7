"""A graph network that predicts what a protein's atoms show in a magnetic field."""

from __future__ import annotations

import numpy as np

from .conftest import SameOnBoth

# an ideal helix: of each atom its distance from the axis, its angle, and its height
HELIX = """
from importlib.resources import files
from caustic import predict_shifts_onnx

residue = {
    "N": (1.55, -28, -0.9), "CA": (2.29, 0, 0), "C": (1.65, 26, 1.1),
    "O": (2, 29, 2.3), "CB": (3.3, -19, 1.2),
}
names = "ALA LEU LYS GLU SER VAL TRP GLN ALA ILE ASP PHE THR ARG".split()
lines = []
for i, name in enumerate(names, 1):
    for atom, (radius, angle, height) in residue.items():
        turn = np.radians(100 * i + angle)
        x, y, z = radius * np.cos(turn), radius * np.sin(turn), 1.5 * i + height
        lines.append(
            f"ATOM  {len(lines) + 1:5}  {atom:3} {name} A{i:4}    "
            f"{x:8.3f}{y:8.3f}{z:8.3f}  1.00 20.00          {atom[0]:>2}"
        )
with open("helix.pdb", "w") as file:
    file.write("\\n".join([*lines, "END", ""]))
model = files("caustic") / "data" / "best_v2_carbons.onnx"
shifts = predict_shifts_onnx("helix.pdb", model)
for nucleus, mean in shifts.mean.items():
    results[nucleus] = mean
    results[f"{nucleus} deviation"] = shifts.std[nucleus]
"""


def test_caustic_predicts_the_same_shifts(same_on_both: SameOnBoth) -> None:
    """Its model has 19 inputs, with edges between atoms as indices."""
    nuclei = ["H", "HA", "N", "CA", "CB", "C"]
    tolerances = dict.fromkeys(nuclei, 1e-3)
    tolerances |= {f"{nucleus} deviation": 1e-3 for nucleus in nuclei}
    results = same_on_both("caustic", HELIX, tolerances)
    # in parts per million; nothing else has a beta carbon as serine's and threonine's
    assert np.flatnonzero(results["CB"] > 60).tolist() == [4, 12]
    assert (abs(results["C"] - 177) < 4).all()
