"""A fifth forty, planted as the fourth were, by somebody who knew nothing of those."""
