"""Kernels of GPUs: what targets record that launch workgroups, its text, and runs."""
