"""Turns groups of calls into commands over views: which kernels, and in what order."""
