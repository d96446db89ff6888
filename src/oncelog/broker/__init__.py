"""The broker: the thin shell around the pure rooms.

It reads bytes, asks a pure room, and does what it says.
"""
