"""Connections: bytes to frames, frames to handlers, and replies back in order (D13).

It must not know any API, partition or coordinator: handlers are given to it.
"""
