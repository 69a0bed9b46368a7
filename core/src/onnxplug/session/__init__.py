"""What users hold: a session, its values and bindings."""
