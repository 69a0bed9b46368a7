"""Core AI: programs as its models, and runs of them."""
