"""Products of codes: of integers, which stand for themselves or for other numbers."""
