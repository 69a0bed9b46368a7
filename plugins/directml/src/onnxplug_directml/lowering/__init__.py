"""Partitions as graphs of DirectML's operators."""
