"""The transaction coordinator: it fences producers and ends transactions.

Pure. `TransactionCoordinatorShard` in `shard` decides; `events` defines its events and replies;
`states` has the table of legal moves. It knows no sockets, files, tasks, clocks or wire formats:
handlers make events from requests and responses from replies. The package imports none of its
modules, so that a broker can import them one by one.
"""
