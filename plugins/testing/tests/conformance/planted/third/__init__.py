"""A third forty, planted when the kit had been mended for what it missed of the second.

They were written as the others were, and by somebody who had not seen the kit's source,
nor how it is used.
"""
