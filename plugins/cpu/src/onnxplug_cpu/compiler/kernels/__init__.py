"""Generators of kernels, and what records their calls."""
