"""Two EPs without mistakes, and six times forty with one each: what authors get wrong.

They were written from the contract alone, before anybody knew who would find them:
nothing here is changed so that it is found. :mod:`.device_ep` has memory and streams
of its own, :mod:`.compile_ep` makes a function of each partition; :mod:`.mistake` says
what is known of a mistake, and :mod:`.exhibit` how each is seen.  The second forty are
in :mod:`.second`, the third in :mod:`.third`, the fourth in :mod:`.fourth`, the
fifth in :mod:`.fifth`, and the sixth in :mod:`.sixth`.
"""
