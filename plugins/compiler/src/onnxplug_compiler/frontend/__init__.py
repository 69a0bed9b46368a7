"""Turns nodes into groups of calls: what a call means, patterns, and fusion."""
