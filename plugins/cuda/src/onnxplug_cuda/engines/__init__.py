"""NVIDIA's libraries, as what computes some of the commands."""
