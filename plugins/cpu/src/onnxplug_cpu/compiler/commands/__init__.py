"""Calls of kernels with words: what kernels record, and the runtime runs."""
