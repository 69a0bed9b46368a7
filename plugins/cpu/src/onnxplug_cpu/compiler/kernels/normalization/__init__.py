"""Norms and softmax, which scale rows by what they sum up to."""
