"""Patterns that exporters write as several operators, and the language of them."""
