"""What targets record: one module for each family of work."""
