"""Rows about the log itself: restarts, many partitions, compaction, cold reads.

Each gets a broker of its own on a folder that is filled without one, so that a row of 1,000,000
transactions takes seconds to prepare and both systems open the same files.
"""
