"""Reductions over axes, the positions of extremes, and cumulative sums."""
