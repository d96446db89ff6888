"""Ids, offsets, epochs, limits, error kinds and configuration definitions.

The lowest room: pure values that every other room may import. It knows nothing of bytes, files,
sockets or time.
"""
