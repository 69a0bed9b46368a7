"""Convolutions of 3×3 with fewer multiplications, by transforms of tiles (Winograd)."""
