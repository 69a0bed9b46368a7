"""Caches of keys and values: rows are kept, written where they belong, and attended to."""
