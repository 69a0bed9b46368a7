"""Nodes that the EP is to run as the CPU EP does, by family."""
