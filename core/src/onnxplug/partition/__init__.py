"""Decides which EP runs which nodes, and cuts the graph accordingly."""

from onnxplug.partition.assign import Assignment, Candidate, assign
from onnxplug.partition.cut import Cut, cut
from onnxplug.partition.islands import find_islands
from onnxplug.partition.partition import GraphPartition

__all__ = [
    "Assignment",
    "Candidate",
    "Cut",
    "GraphPartition",
    "assign",
    "cut",
    "find_islands",
]
