"""Defines the named limits of the metadata store in ZooKeeper, as `limits` does."""

ZOOKEEPER_WRITES_COUNT_MAX, ZOOKEEPER_WRITE_BYTES_MAX = 500, 256 * 1024
"""Writes, and bytes of their paths and values, of one step in ZooKeeper.

It takes 1 MiB with what it adds to each of them.
"""

ZOOKEEPER_WRITE_ATTEMPTS_MAX = 30
"""Tries of one step of writes in ZooKeeper while other brokers write steps of their own."""

ZOOKEEPER_READ_ROUNDS_MAX = 50
"""Readings of what others change meanwhile, until all is of one moment."""

ZOOKEEPER_RING_STEPS_COUNT_MAX = 1_000
"""Steps of writes whose paths ZooKeeper keeps: a broker that missed more reads everything."""

ZOOKEEPER_RING_BYTES_MAX, ZOOKEEPER_RING_STEP_BYTES_MAX = 128 * 1024, 32 * 1024
"""Of the paths of all those steps, before they are compressed, and of one of them: brokers read
everything after a step with more.
"""

ZOOKEEPER_REBINDINGS_COUNT_MAX = 400
"""Versions of a value that is bound to another session: each takes an operation to be reached."""

ZOOKEEPER_IN_FLIGHT_COUNT_MAX = 100
"""Requests to ZooKeeper at a time: kazoo blocks its caller beyond 270 that it has not sent."""

ZOOKEEPER_RECONNECT_DELAY_MS_MIN, ZOOKEEPER_RECONNECT_DELAY_MS_MAX = 50, 1_000
"""Pause before ZooKeeper's servers are tried again after none was reached."""

ZOOKEEPER_RECONNECT_WAIT_MS = 3_000
"""How long a request waits for a lost connection to ZooKeeper before it fails."""

ZOOKEEPER_CLOSE_WAIT_MS = 3_000
"""How long a stop waits for ZooKeeper to hear of it; it learns by the session's timeout else."""

ZOOKEEPER_ADDRESSES_COUNT_MIN = 3
"""Into so many parts at least a session is divided: each address tried has one to answer."""
