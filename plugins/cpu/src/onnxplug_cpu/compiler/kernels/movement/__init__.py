"""Copies, gathers, scatters and sequences: elements that are only moved or counted."""
