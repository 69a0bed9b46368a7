"""Scaled dot-product attention, for many queries and for few."""
