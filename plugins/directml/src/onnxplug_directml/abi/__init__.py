"""What crosses the border to Windows: structures, enumerations and GUIDs, by
Microsoft's names.

Each module is of one of Microsoft's headers.  Members of enumerations lack the prefix
that they have in common.  The layout is that of 64-bit Windows, on every system.
"""
