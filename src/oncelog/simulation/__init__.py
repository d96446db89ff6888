"""Simulates brokers and clients in one process under virtual time; one seed decides all (D3).

The brokers and clients are the shipped ones; their clock, network, disk and executor are simulated.
A plan injects faults; checkers examine what clients saw and what the logs contain.
"""
