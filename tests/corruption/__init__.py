"""What damage to any file of a log directory does: a matrix of all kinds, and random mutations.

`reader` reads all that a broker serves, `judge` holds that against what the folder held, `matrix`
makes the table in docs/durability.md, `campaign` mutates thousands of files.
"""
