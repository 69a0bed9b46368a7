"""The compiled tier: partitions become programs of machine code."""
