"""Compiled partitions as EPContext nodes: how a model has them, and how they come back.

The host owns the files, and everything around an EP's bytes, which an EP is given only
when all of that was found to be right.
"""
