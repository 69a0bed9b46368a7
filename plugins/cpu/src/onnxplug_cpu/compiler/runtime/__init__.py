"""Gives commands addresses and runs them: code, memory, threads and measurements."""
