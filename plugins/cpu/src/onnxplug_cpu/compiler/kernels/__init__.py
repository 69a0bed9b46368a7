"""Kernels by family: what generates their code, and what records calls of them."""
