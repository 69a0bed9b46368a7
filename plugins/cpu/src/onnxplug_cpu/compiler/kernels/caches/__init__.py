"""Caches of keys and values: rows that are kept, and rows that are written there."""
