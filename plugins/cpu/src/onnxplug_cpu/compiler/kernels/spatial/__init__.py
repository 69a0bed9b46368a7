"""Operators that read between pixels: resampling by tables, grids, regions."""
