"""Decides which EP runs which nodes, and cuts the graph accordingly."""

from onnxplug.run.partition.assign import Assignment, Candidate, assign
from onnxplug.run.partition.cost import find_unprofitable
from onnxplug.run.partition.cut import Cut, cut
from onnxplug.run.partition.partition import GraphPartition

__all__ = [
    "Assignment",
    "Candidate",
    "Cut",
    "GraphPartition",
    "assign",
    "cut",
    "find_unprofitable",
]
