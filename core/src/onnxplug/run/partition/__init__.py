"""Decides which EP runs which nodes, and cuts the graph accordingly."""

from onnxplug.run.partition.assign import Assignment, Candidate, ask, assign
from onnxplug.run.partition.cost import find_unprofitable
from onnxplug.run.partition.cut import Cut, cut
from onnxplug.run.partition.partition import GraphPartition

__all__ = [
    "Assignment",
    "Candidate",
    "Cut",
    "GraphPartition",
    "ask",
    "assign",
    "cut",
    "find_unprofitable",
]
