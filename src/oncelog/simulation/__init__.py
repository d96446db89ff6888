"""The whole system in one process under virtual time, where one seed decides everything (D3).

The brokers and clients here are the shipped ones; their clock, network, disk and executor are
simulated. Faults strike by plan, checkers judge what clients saw and what the logs hold.
"""
