"""Measurements on the machine at hand: one file per kind (`device`), records that need no torch in `records`.

What measures imports torch inside its functions; the extra `torch` brings it, and `machine.torch_or_error` says so.
"""
