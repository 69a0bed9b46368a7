"""A sixth forty, planted as the fifth were, by somebody who knew nothing of those."""
