"""Defines the named limits of what brokers of a cluster send each other, as `limits` does."""

CONTROLLER_EVENT_BYTES_MAX = 64 * 1024 * 1024
"""Size of an event that a broker sends to the controller, and of its reply.

A registration with 500,000 logs has that size.
"""
