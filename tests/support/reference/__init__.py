"""Writes the reference pages of docs/ from the code: settings, metrics, errors, commands, API.

Run as ``python -m tests.support.reference``; tests hold each page to what this makes.
"""
