"""Builds what runs a model, and runs it: from a prepared graph to results."""
