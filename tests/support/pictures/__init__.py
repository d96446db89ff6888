"""Draws the pictures of the documentation, as SVG, from the code and from a broker that runs.

Run as ``python -m tests.support.pictures``; ``tests/unit/support/test_pictures.py`` holds each to
what this makes.
"""
