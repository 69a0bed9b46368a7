"""Windows that slide over arrays: pools and depthwise convolutions."""
