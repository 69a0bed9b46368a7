"""A fourth forty, planted by somebody who knew the contract and both EPs alone.

Whoever wrote them had seen two of the earlier mistakes, one of each EP, as to their
form, and nothing of the kit.
"""
