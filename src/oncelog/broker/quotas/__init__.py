"""Holds clients to their quotas; nothing of it is imported or asked while there are none."""
