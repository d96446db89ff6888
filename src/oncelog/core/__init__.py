"""Ids, offsets, epochs, limits, error kinds and configuration definitions.

The lowest package: pure values that every other package may import. It knows nothing of bytes,
files, sockets or time.
"""
