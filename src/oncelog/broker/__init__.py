"""The broker: the thin shell around the pure packages.

It reads bytes, asks a pure package, and executes its decision.
"""
