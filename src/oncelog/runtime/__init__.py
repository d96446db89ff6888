"""The edges: clock, network, disk and executor, and what is built directly on them.

Broker and client touch the outside world only through these (D3), so that a simulation can stand in their place.
"""
