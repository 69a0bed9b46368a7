"""Runs plans on a GPU: partitions, their programs and arrays, on what an EP drives."""
