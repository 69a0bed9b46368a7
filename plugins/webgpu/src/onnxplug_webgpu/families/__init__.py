"""What the target records: one module for each family of work."""
