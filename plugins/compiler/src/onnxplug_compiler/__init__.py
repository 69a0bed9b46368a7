"""The half of a compiler that is the same for all targets."""

__version__ = "0.1.0"
