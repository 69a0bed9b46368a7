"""Which elements are the largest or smallest, and where they are."""
