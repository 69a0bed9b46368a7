"""Decides which EP runs which nodes, and cuts the graph accordingly."""

from onnxplug.partition.assign import Assignment, Candidate, ask, assign
from onnxplug.partition.cost import find_unprofitable
from onnxplug.partition.cut import Cut, cut
from onnxplug.partition.partition import GraphPartition

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
