"""Reductions over axes, and the positions of extremes."""
