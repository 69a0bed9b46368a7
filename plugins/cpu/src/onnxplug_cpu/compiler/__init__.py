"""The compiled tier: partitions become programs of machine code; here lies what ties
the rooms together, each of which says in one sentence what may be in it.
"""
