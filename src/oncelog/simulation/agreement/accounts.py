"""Compares what a broker counts with what it holds, and looks for what no client waits for.

`accounts` holds between any two callbacks. `leftovers` is asked some seconds after all clients have
gone: then no fetch is parked, and no connection is held up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from oncelog.broker.broker import Broker

__all__ = ["accounts", "leftovers"]


def accounts(broker: Broker) -> Iterator[str]:
    """Say where a count of connections, bytes or sessions is not what is there."""
    server = broker.server
    hosts = Counter(connection.peer_host for connection in server.connections)
    if server._per_ip != hosts:
        yield f"connections by host are {dict(hosts)}, counted {dict(server._per_ip)}"
    unread = sum(connection._unread_bytes for connection in server.connections)
    if server.unread_bytes != unread:
        yield f"unread are {unread} bytes, counted {server.unread_bytes}"
    for connection in server.connections:
        queued = sum(len(frame) for frame, _ in connection._queue)
        if connection._queued_bytes != queued:
            yield f"{connection} has queued {queued} bytes, counted {connection._queued_bytes}"
    sessions = broker.partitions.fetch_sessions
    held = sum(len(session.partitions) for session in sessions._sessions.values())
    if sessions.partitions_count != held:
        yield f"fetch sessions have {held} partitions, counted {sessions.partitions_count}"
    if len(sessions) > sessions._slots:
        yield f"{len(sessions)} fetch sessions in {sessions._slots} slots"


def leftovers(broker: Broker) -> Iterator[str]:
    """Say what is left of requests although every client has gone."""
    for partition in broker.partitions:
        # Those of followers are parked as long as nothing is written.
        if len(partition.fetches) >= max(1, len(partition.state.replicas)):
            yield f"{partition.topic_partition} has {len(partition.fetches)} parked fetches"
    # Connections that are left are those of machines that have fallen silent.
    for connection in broker.server.connections:
        if connection._reading_paused and connection.idle and not connection._writing_paused:
            yield f"{connection} is not read although nothing is under way"
