"""Texts of kernels, from what they do on scalars and where these are."""
