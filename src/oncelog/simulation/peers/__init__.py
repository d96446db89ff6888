"""Scripted clients that speak as stock clients do, at the level of requests.

Each role (`roles`) is a coroutine `run(context)` that writes down what it sees as events of the
history. A flavor says which versions a client speaks and what it does its own way; everything below
is shared: `wire` (connections, metadata, coordinators), `sending` (Produce), `transactional`,
`fetching`, `membership`. No peer raises for what a broker or a network may do; what a broker may
never do is written down as `Progress("stuck: ...")`.
"""
