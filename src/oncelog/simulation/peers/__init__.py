"""Scripted clients that send the requests that stock clients send.

Each role (`roles`) is a coroutine `run(context)` that records its results as events of the history.
A flavor defines the versions of a client and its differences; the rest is shared: `wire`
(connections, metadata, coordinators), `sending` (Produce), `transactional`, `fetching`,
`membership`. Errors that a broker or a network may cause raise no exception in a peer; what a
broker must never do is recorded as `Progress("stuck: ...")`.
"""
