"""Kernels of GPUs: what targets record that launch workgroups, and its text."""
