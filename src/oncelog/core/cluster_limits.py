"""Defines the named limits of what brokers of a cluster send each other, as `limits` does."""

METADATA_DELETED_COUNT_MAX = 10_000
"""Deleted paths that a metadata file names to readers; who has read less reads all values again."""

CONTROLLER_EVENT_BYTES_MAX = 16 * 1024 * 1024
"""Size of an event that a broker sends to the controller, and of its reply.

A registration with 125,000 logs has that size. It is below `MESSAGE_BYTES_MAX`, which bounds the
request around it.
"""

CONTROLLER_EVENT_LISTS_COUNT_MAX = 500_000
"""Lists and objects in the JSON of such an event; an empty one costs up to 30 times its bytes."""

ISR_CHANGES_TOGETHER_COUNT_MAX = 500
"""Partitions in one request of a broker to change their ISRs; more follow with the next one."""

ISR_RETRY_MS = 500
"""How long a leader waits before it asks again for an ISR that it was not given."""

ISR_ANSWER_MS_MAX = 30_000
"""After so long the answer to such a request counts as lost."""

CONFIRMATION_WAIT_MS_MAX = 5_000
"""A coordinator's reply waits this long for the replicas to confirm that it leads, then it is
COORDINATOR_NOT_AVAILABLE: as long as for a transition (`PARKED_REQUEST_WAIT_MS_MAX`).
"""

NEWS_RETRY_MS_MIN = 20
"""First pause of a follower whose leader does not know yet that it leads, or leads no more; each
further one is twice as long, up to `replica.fetch.backoff.ms`.
"""

FOLLOWER_FETCH_SESSIONS_COUNT_MAX = 1000
"""Fetch sessions of followers: one for each fetcher of another broker, and those of past lives."""

FETCH_CHANGES_COUNT_MAX = 10_000
"""Partitions that one fetch of a follower adds to its session, or takes out of it."""

MARKER_REQUESTS_IN_FLIGHT_COUNT_MAX = 5
"""Requests for end markers under way to one broker; what is due meanwhile goes with the next."""

MARKERS_PER_REQUEST_COUNT_MAX = 10_000
"""End markers, by partition, in one such request; the others follow with the next."""

MARKERS_COMMIT_WAIT_MS = 100
"""How long a leader waits for another broker's markers to be committed before it answers. Those
that are not get REQUEST_TIMED_OUT; asked for again, they are not appended again.
"""

MARKERS_ANSWER_MS_MAX = 5_000
"""After so long the answer to such a request counts as lost."""

SQLITE_SESSIONS_COUNT_MAX = 1000
"""Sessions at one time that one metadata file of SQLite can have."""

SQLITE_BEATS_PER_TIMEOUT_COUNT = 4
"""How often a session of SQLite shows within its timeout that it lives, and looks for others."""

METADATA_COMPANY_POLL_MS = 100
"""Pause between two polls of a metadata file that other brokers share (`limits.METADATA_POLL_MS`):
what one of them decides, clients of the others wait for.
"""

CATCH_UP_MS_MAX = 1_000
"""Longest wait for what another broker knows already: of a request for a coordinator that is not
here, as it may be named there, and of an answer to a change of topics, as the client may ask there.
"""

HANDOVER_WAIT_MS_MAX = 2_000
"""A broker that stops serves so long for others that do not name the next leaders yet."""

HANDOVER_LOOK_MS = 20
"""Pause between two questions to those."""

HANDOVER_TOPICS_TOGETHER_COUNT_MAX = 100
"""Topics in one such question: the loop of a broker that is asked goes on."""

HANDOVER_LINGER_MS = 1_000
"""A coordinator of transactions in use serves so much longer. A producer that asks it within that
time gets NOT_COORDINATOR instead of finding no broker: kafka-python 3.0 loses a request that it
cannot send. Apache Kafka's brokers stay for a heartbeat's interval, 2 s by default.
"""

CONTROLLER_WAIT_MS_MAX = 20_000
"""Longest wait of an event for a broker to be the controller, and for what was decided to be
applied here: longer than a session lasts by default. Then it is answered REQUEST_TIMED_OUT.
"""

CONTROLLER_WAIT_MS_MIN = 1_000
"""Shortest wait of a client's request for the controller to answer, whatever timeout it names; and
the wait of Metadata and FindCoordinator, which clients repeat by themselves.
"""

APPLIED_WAIT_MS_MAX = 5_000
"""Longest wait for the other brokers to have applied a change of ACLs. One that does not say so
within that time is named in the log.
"""

APPLIED_LOOK_MS = 20
"""Pause between two questions to one of those."""

EMBEDDED_BROKERS_COUNT_MAX = 16
"""Brokers of a cluster inside one process, each with a thread of its own."""

CLUSTER_PROCESSES_COUNT_MAX = 16
"""Brokers that `oncelog cluster` starts on one machine."""

PEER_ANSWER_MS_MAX = 30_000
"""After so long without an answer a connection to another broker, for transactions, is closed."""

VERIFICATION_WAIT_MS_MAX = 20
"""How long a coordinator keeps other brokers' AddPartitionsToTxn waiting for an answer: for the
transaction before to end, or for the append. Later requests of that broker are answered after it.
"""

VERIFICATIONS_TOGETHER_COUNT_MAX = 1_000
"""Transactions in one such request; more follow with the next one."""

VERIFICATION_REQUESTS_IN_FLIGHT_COUNT_MAX = 5
"""Such requests that one broker has sent to another, and that are not answered yet."""

VERIFICATION_RETRY_MS_MIN, VERIFICATION_RETRY_MS_MAX = 5, 250
"""Pause before a broker asks again about an id whose transaction before has not ended."""

REFUSED_SEQUENCES_COUNT_MAX = 10_000
"""Producers in partitions of one broker whose lowest refused sequence is remembered; the oldest one
is forgotten first. Each takes up to 0.4 KB.
"""

REFUSED_SEQUENCE_MS_MAX = 600_000
"""Time for which it is: longer than stock clients try to deliver a record (2 and 5 minutes)."""

COORDINATOR_STALL_MS, AFTER_STALL_MS = 1_000, 500
"""A coordinator whose timer rings so late was in a process that stood still: it expires nothing for
so long, in which it reads what clients have sent meanwhile.
"""
