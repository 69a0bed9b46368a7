"""Writes functions as LLVM IR; knows no operator, no array and no command."""
