"""Compares what a partition, a coordinator or a folder says with what the bytes of its logs imply.

Each function returns sentences, none if both agree. What compaction, retention, expiry and
snapshots take away from the bytes or from the broker's memory is allowed for as narrowly as they
permit, and said where.
"""
