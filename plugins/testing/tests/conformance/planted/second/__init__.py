"""Forty more, planted when the kit had been mended for what it missed of the first.

They were written as the first were, and by somebody who had not seen the kit's source.
"""
