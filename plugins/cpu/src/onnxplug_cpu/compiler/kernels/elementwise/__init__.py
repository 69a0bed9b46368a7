"""Chains of element-wise operators, 16 elements at a time."""
