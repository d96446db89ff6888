"""Defines the named limits: every queue, buffer, retry and loop has one.

The unit is the last part of the name.
"""

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
PRODUCER_EPOCH_MAX = 2**15 - 1
"""Largest producer epoch on the wire (int16)."""

PRODUCER_EPOCH_EXHAUSTED = PRODUCER_EPOCH_MAX - 1
"""From this epoch on a bump moves to a new producer id (Kafka's `isEpochExhausted`)."""

SEQUENCE_MODULUS = 2**31
"""Sequence numbers wrap here (INV-2)."""

CACHED_BATCHES_PER_PRODUCER_COUNT = 5
"""Batches per producer and partition kept to recognise duplicates (clients have five in flight)."""

VERIFICATIONS_REMEMBERED_COUNT_MAX = 10_000
"""Bounced verifications per partition that are remembered for their lowest sequence; the oldest one
is forgotten first. Each takes up to 0.5 KB.
"""

PRODUCER_ID_BLOCK_COUNT = 1000
"""Producer ids reserved in the metadata store at a time (INV-11)."""

READ_BUFFER_BYTES = 256 * 1024
"""The one buffer that all connections of a loop receive into."""

FRAME_BYTES_MIN = 64 * 1024
"""Initial size of the buffer of a frame that arrives in parts; doubled up to the claimed size."""

CONNECTION_WRITE_TURN_BYTES_MAX = 1024 * 1024
"""Reply bytes gathered in one turn of the event loop before they are passed to the transport."""

CONNECTION_QUEUED_REQUESTS_COUNT_MAX = 256
"""Pipelined requests of one connection that wait for their turn before reading stops."""

CONNECTION_QUEUED_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of such requests before reading stops."""

CONNECTION_PENDING_REPLIES_COUNT_MAX = 256
"""Replies of one connection that may wait before no further request of it is started."""

CONNECTION_WRITE_BUFFER_BYTES_HIGH = 1024 * 1024
"""Reply bytes that a peer may leave unread before reading from it stops."""

UNREAD_REPLIES_BYTES_HIGH = 256 * 1024 * 1024
"""Reply bytes that all peers together may leave unread before fetches get smaller responses."""

CROWDED_FETCH_BYTES_MAX = 64 * 1024
"""Largest fetch response then, apart from a first batch that is larger."""

DISK_EXECUTOR_THREAD_COUNT = 4
"""Threads for each lane of blocking file work: fsyncs, reads, upkeep (D12)."""

SEALED_SEGMENTS_OPEN_COUNT_MAX = 8
"""Sealed segments per partition whose indexes are kept in memory; the least recently read one is
released first.
"""

DESCRIPTORS_COUNT_MAX = 1024 * 1024
"""Descriptors that a broker asks the system for, where it allows more."""

LOG_FILES_OPEN_COUNT_MIN = 64
"""Log files that a broker keeps open even where half of its descriptors are fewer."""

OPEN_FILES_LOOKED_AT_COUNT_MAX = 4096
"""Open files looked at for one that can be closed, before one is synced for it, in 1 ms."""

OPEN_FILES_LOOKED_AT_TOGETHER_COUNT_MAX = 256
"""The same in the background, while a thread that opens a file waits for the search."""

SIMULATED_OPEN_FILES_COUNT_MAX = 16
"""Log files that a simulated process keeps open: few, so that they are closed and opened again."""

RECENT_BATCHES_COUNT_MAX = 8192
"""Batches at the end of a log whose positions are kept: a reader at the tail walks no headers."""

REMOVAL_CHECK_MS = 1_000
"""Longest pause between two checks for deleted folders and files that are due for removal."""

PARTITIONS_PER_TURN_COUNT_MAX = 100
"""Partitions added or dropped before the event loop runs other work; each takes 30 us."""

TOPICS_CREATED_TOGETHER_COUNT_MAX = 50
"""Topics of one request that are stored and made in one step; deciding on one takes 50 us."""

PARTITIONS_TAKEN_IN_TOGETHER_COUNT = 500
"""Partitions of several topics that are made by one piece of work; a larger topic has its own."""

TAIL_READ_BYTES_MAX = 64 * 1024 * 1024
"""How far before the end of a log file a read counts as one at the tail, which was written lately
and is in memory. Earlier records are read in the executor unless the system reports them as cached.
"""

COLD_READS_COUNT_MAX = 8
"""Requests whose cold reads run at once; the others wait in the order of arrival. Each holds what
it has read until its reply is sent.
"""

RECOVERY_READ_SIZE_BYTES = 1024 * 1024
"""Bytes read at a time while a segment is scanned."""

MESSAGE_CHECKED_SIZE_BYTES_MAX = 64 * 1024 * 1024
"""A larger message is not looked at to distinguish another format from damage."""

LATER_FORMAT_BATCHES_COUNT_MAX = 16
"""So many batches in a row of a format that is not known are none of them damage."""

DAMAGED_PLACES_NAMED_COUNT_MAX = 100
"""Damaged places of a partition that the broker's log names, each once: readers try again forever.
"""

CLEANER_STEP_BYTES = 1024 * 1024
"""Bytes that the cleaner reads and writes in one step; other work runs between two steps."""

CLEANER_STEP_RECORDS_COUNT = 128
"""Records whose keys the cleaner compares in one step, which holds the interpreter's lock."""

CLEANER_MARKS_SIZE_BYTES = 1024 * 1024
"""Memory in which the cleaner marks the offsets of retained records, besides its offset map."""

RECOVERY_PROGRESS_SIZE_BYTES = 1024 * 1024 * 1024
"""Bytes of one log after which a long scan logs its progress."""

REGISTER_DEAD_RECORDS_COUNT_MAX = 64
"""Obsolete records in a segment register before it is rewritten: those of removed segments, and
older ones of a present segment.
"""

RECORD_BATCH_SIZE_BYTES_MAX = 2**31 - 1
"""A batch's length is an int32 on the wire and on disk."""

PARKED_REQUEST_WAIT_MS_MAX = 5_000
"""A coordinator's request waits this long for a transition in progress, then it is answered by
CONCURRENT_TRANSACTIONS (D7), and as long for a load, then by COORDINATOR_LOAD_IN_PROGRESS. The
request timeout is 30 s in Kafka's clients, 60 s in librdkafka.
"""

PARKED_REQUESTS_PER_ID_COUNT_MAX = 100
"""Events that may queue behind one id's transition; its one producer sends a request per partition
leader at most.
"""

REQUESTS_HELD_BY_LOAD_COUNT_MAX = 1_000
"""Requests that wait for the load of one coordinator's partition; all are decided in one turn of
the event loop, in about 100 ms.
"""

IDLE_SWEEP_MS_MAX = 30_000
"""Longest pause between two checks for idle connections."""

BACKGROUND_CLOSE_MS_MAX = 30_000
"""How long closing a blocking client waits for its thread, whose tasks may refuse to end."""

REQUEST_PARTITIONS_COUNT_MAX = 200_000
"""Topics plus partitions that one Produce or Fetch request may name, against hostile frames."""

RESPONSE_SIZE_MAX = 256 * 1024 * 1024
"""Largest response that a client accepts; with a larger one the peer does not speak Kafka."""

CLIENT_BUFFER_SIZE_MAX = 64 * 1024 * 1024
"""Bytes of records a producer holds that are not acknowledged yet (`buffer_memory`)."""

CLIENT_QUEUED_KBYTES_MAX = 65_536
"""KiB of records a consumer holds that it has not returned (`queued_max_messages_kbytes`)."""

CLIENT_UNREAD_FAILURES_MAX = 100
"""Failed futures that a producer keeps until its block ends."""

COORDINATOR_RETRY_TIMEOUT_MS = 60_000
"""How long a client retries a request to a coordinator that answers with a retriable error."""

INT64_MAX = 2**63 - 1
"""Kafka's spelling of "no limit" in LONG settings."""

DOUBLE_MAX = 1.7976931348623157e308
"""Kafka's spelling of "no limit" in DOUBLE settings."""

METADATA_POLL_MS = 500
"""Pause between two polls for metadata that another process wrote."""

SQLITE_BUSY_TIMEOUT_MS = 10_000
"""Longest wait for another process's write to the metadata store."""

EXPIRED_IDS_REMEMBERED_COUNT_MAX = 1_000
"""Expired transactional ids that a coordinator can still explain."""

LIFE_STEPS_PER_ID_COUNT_MAX = 24
"""Transitions, causes and reports about markers that a coordinator remembers of each transactional
id: about five transactions.
"""

LIFE_PARTITIONS_PER_STEP_COUNT_MAX = 8
"""Partitions that such a step names (a report: for each error). The others are counted."""

LIFE_LOG_OFFSETS_COUNT_MAX = 100_000
"""Last offsets of a partition of `__transaction_state` that are searched for an id's transitions,
if its coordinator does not report them.
"""

LIVES_REMEMBERED_COUNT_MAX = 100
"""Transactional ids per partition of `__transaction_state` whose history is remembered: 5,000 with
50 partitions, 6 to 15 KB each.
"""

CLIENT_ID_TOLD_LENGTH_MAX = 100
"""Characters of a client id that histories and lines of the log repeat."""

TRANSACTIONS_SWEPT_PER_TICK_COUNT_MAX = 100
"""Transactional ids that one tick of a coordinator checks for expiry. The next tick checks the
others.
"""

TRANSACTION_SWEEP_CONTINUE_MS = 50
"""Pause before a sweep continues that reached the limit above, and after a shard has aborted
transactions that timed out: those that time out meanwhile are aborted together.
"""

TRANSACTIONS_ENDED_PER_TICK_COUNT_MAX = 50
"""Transactions that timed out, or that lack COMPLETE, which one tick of a coordinator ends; also
the markers that are written per turn of the loop. All three together take about 8 ms.
"""

PRODUCERS_SWEPT_PER_TURN_COUNT_MAX = 1_000
"""Producers (and partitions) checked for idleness before other work runs; 0.4 us each."""

PRODUCERS_COUNT_MAX = 500_000
"""Producers that all partitions of a broker remember together; one takes 0.4 kB after its first
batch, 1.2 kB after its fifth, so 0.6 GB in all.
"""

LOAD_TIMES_KEPT_COUNT = 50
"""Loads of a coordinator's partitions whose times the metrics report: those of one start."""

LATE_TRANSACTION_BUFFER_MS = 5 * 60 * 1000
"""A transaction counts as late when it is open for so long beyond the longest timeout allowed
(Kafka's `LATE_TRANSACTION_BUFFER_MS`).
"""

METRICS_REQUEST_BYTES_MAX = 8 * 1024
"""Longest request that the address of the metrics takes."""

METRICS_CONNECTIONS_COUNT_MAX = 16
"""Connections open at that address at a time; each may hold one response."""

METRICS_REQUEST_TIMEOUT_S = 10
"""Time after which such a connection is closed, whether its peer sends or reads slowly."""

METRICS_LINES_PER_TURN_COUNT = 500
"""Lines of a response that are formatted before other work runs; 2 us each."""

METRICS_OFFSETS_COUNT_MAX = 10_000
"""Committed offsets of groups that a scrape shows, each with its lag."""

METRICS_TEXT_BYTES_MAX = 64 * 1024 * 1024
"""Longest answer that `oncelog metrics` reads."""

CLOCK_JUMP_MS_MIN = 1_000
"""Smallest difference between a time in a record's value and the record's timestamp that counts as
a change of the wall clock; a smaller one is the time between two readings of the clock.
"""

MARKER_RETRY_BACKOFF_MS = 50
"""Pause before end markers are sent again to leaders that could not write them."""

MARKER_REFUSED_RETRY_BACKOFF_MS = 5_000
"""The same for leaders that refuse the marker as too old, which an administrator must resolve."""

MARKER_RETRY_TOLD_AFTER_MS = 1_000
"""How long markers are retried before the broker logs it; then at each doubling of that time."""

PARTITIONS_NAMED_COUNT_MAX = 10
"""Partitions that one line of the log names."""

EXPIRY_TOLD_AFTER_MS = 1_000
"""Pause after which expired ids are logged: those that a sweep finds meanwhile share the line."""

EXPIRY_WARNING_SHARE = 10
"""An id is warned of when a tenth of `transactional.id.expiration.ms` is left."""

COMPLETE_RETRY_BACKOFF_MS = 100
"""Pause before the COMPLETE record of a transaction is appended again."""

BATCH_DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
"""Bytes that the records of one batch may take once decompressed."""

TOPIC_NAME_LENGTH_MAX = 249
"""Kafka's limit: a folder name with the partition's number has to fit."""

TOPIC_PARTITIONS_COUNT_MAX = 10_000
"""Partitions of one topic that one request may create (Kafka's `MAX_PARTITIONS_PER_BATCH`)."""

METADATA_WRITE_ATTEMPTS_MAX = 10
"""Tries of one metadata write against concurrent writers before the caller gets an error."""

STATES_DECODED_COUNT_MAX = 1_024
"""Different states of partitions that are kept decoded, of 0.3 KB each."""

METADATA_FEED_WAIT_MS = 60_000
"""Longest wait of one poll of the metadata feed."""

STORE_RETRY_MS_MIN, STORE_RETRY_MS_MAX = 50, 1_000
"""Pause before a metadata store that failed is asked again; changes are refused meanwhile."""

UNMADE_RETRY_INTERVAL_MS = 5_000
"""Pause before a partition is tried again for which no log directory had room."""

CONTROLLER_EVENTS_COUNT_MAX = 1_000
"""Events that wait for the controller's decision on a broker; more are refused."""

DELETIONS_CONFIRMED_INTERVAL_MS = 60_000
"""Pause between two checks for deleted topics without a folder, marker or offset; the metadata
keeps their ids until two in a row found one so. Longer than any request may be parked.
"""

TRANSACTION_PARTITIONS_COUNT_MAX = 100_000
"""Partitions of one transaction: they must fit into one record of the transaction log."""

MARKERS_AUDITED_COUNT_MAX = 20
"""Producers, and partitions of each, that the log names for one WriteTxnMarkers request."""

PARTITIONS_DESCRIBED_PER_REQUEST_COUNT_MAX = 500
"""Partitions in one DescribeProducers request of the command line, as in Kafka's tools."""

PRODUCER_ID_REFILL_COUNT = 100
"""With this few producer ids left the next block is reserved."""

COORDINATOR_LOAD_BYTES = 1024 * 1024
"""Bytes of an internal partition read at a time while a coordinator loads."""

LOAD_RECORDS_PER_TURN_COUNT_MAX = 1_000
"""Records that a loading coordinator reads per turn of the event loop: about 3 ms."""

LOAD_APPLIED_PER_TURN_COUNT_MAX = 200
"""Records that a loading coordinator decodes and applies per turn: about 3 ms."""

LOAD_STRETCH_RECORDS_COUNT_MAX = 32_768
"""Records, not superseded so far, after which a loading coordinator applies what it has read."""

LOAD_STRETCH_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of an internal partition after which a loading coordinator does the same."""

COORDINATOR_APPEND_BYTES_MAX = 32 * 1024
"""Bytes of tombstones that the group coordinator writes at a time, for offsets that expired or
whose topic is gone: about 450, which take the loop 5 to 10 ms.
"""

MEMBER_REMOVAL_RETRY_BACKOFF_MS = 500
"""Pause before an overdue member of a consumer group is removed again after a failed append, as
Kafka's coordinator retries its timers.
"""

EXPIRY_CONTINUE_MS = 1_000
"""Pause before the expiry of offsets continues that reached the limit above."""

TIMER_MS_MAX = 10 * 365 * 24 * 60 * 60 * 1000
"""An interval beyond ten years means never: event loops cannot wait for Kafka's "infinite", 2^63 -
1 ms.
"""

STOP_FLUSH_TURN_MS = 5
"""One pause of a stopping broker while unsent replies are written."""

STOP_FLUSH_TURNS_COUNT = 100
"""How many such pauses before the connections of peers that do not read are closed."""

MESSAGE_ELEMENTS_COUNT_MAX = 100_000
"""Array elements that one message may hold in all, but for Produce and Fetch with their own limit.
Bounds memory and the loop's time: each costs up to 0.8 KB and 20 us until it is answered.
"""

GROUP_RECORD_ELEMENTS_COUNT_MAX = 1_000_000
"""Elements of all arrays in one record of a consumer group. More than a batch of
`max.message.bytes` can name: a partition takes four bytes.
"""

REGEX_BYTES_MAX = 16 * 1024
"""Longest regular expression over topics, or over transactional ids, that a client may send."""

REGEX_PROGRAM_BYTES_MAX = 256 * 1024
"""Memory that RE2 may use for one such expression; a hostile one takes up to 0.2 ms per name."""

REGEX_CACHE_COUNT_MAX = 64
"""Compiled expressions that are cached."""

GROUP_REGEX_REFRESH_MS_MIN = 10_000
"""A group's expressions are matched against new topics at most this often, as in Kafka."""

MESSAGE_BYTES_MAX = 32 * 1024 * 1024
"""Longest message, Produce and Fetch aside, whatever `socket.request.max.bytes`: its strings and
byte fields are copied.
"""

STRING_BYTES_MAX = 2**15 - 1
"""Longest string of a message: the largest int16 length. Kafka limits compact strings to it as
well.
"""

TAGGED_FIELDS_COUNT_MAX = 32
"""Tagged fields in one place of a message; Kafka's own messages have five at most."""

LOOKED_INTO_BYTES_MAX = 64 * 1024 * 1024
"""Decompressed bytes of a batch whose records the broker itself has to parse: to validate or
recompress them, or to find one by its timestamp.
"""

LOOKED_INTO_RECORDS_COUNT_MAX = 1_000_000
"""Records of one batch that the broker parses then."""

LOOKED_INTO_BATCHES_COUNT_MAX = 8
"""Batches that a lookup by timestamp parses without finding the record, because their headers are
wrong.
"""

RECORD_ERRORS_COUNT_MAX = 10_000
"""Records of one batch that a refused Produce names (KIP-467); the others of so bad a batch are
named at the next attempt.
"""

MACHINE_IMPORT_DELAY_MS = 500
"""How long after the start the coordinators' modules are imported, if no request needed them
before.
"""

MACHINE_IMPORT_PAUSE_MS = 10
"""Pause between two parts of that import, in which requests are handled."""

MOVE_READ_BYTES = 1024 * 1024
"""Bytes of a log that are copied at a time into another log directory."""

MOVE_STEP_BYTES = 16 * 1024 * 1024
"""Bytes copied before the executor's thread is given back, and again for the last step, during
which the partition is not served.
"""

CONFIG_VALUE_LENGTH_MAX = 2**15 - 1
"""Longest value of one setting, in characters (Kafka's `Short.MAX_VALUE`)."""

FETCH_SESSION_EVICTION_MS = 2 * 60 * 1000
"""A fetch session that was not used for so long may be evicted for any new one (Kafka's
`MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS`).
"""

FETCH_SESSIONS_PARTITIONS_COUNT_MAX = 100_000
"""Partitions remembered by all fetch sessions together; each takes up to 1 kB, so 100 MB in all."""

INPUT_LINE_BYTES_MAX = 64 * 1024 * 1024
"""Longest line that `oncelog produce` accepts; far above a broker's default limit."""

SPARE_FRAME_BYTES_MAX = 2 * 1024 * 1024
"""The largest frame whose memory is kept for the next one, once for all connections of a loop."""

LISTEN_BACKLOG_COUNT = 1024
"""Connections that the system completes before the broker accepts them. A further one has to retry
after a second. Kafka's default, `socket.listen.backlog.size`, is 50.
"""

KEPT_FREE_MEMORY_BYTES_MAX = 64 * 1024 * 1024
"""Freed memory that the process keeps for its next buffers before it goes back to the system."""

COLLECTOR_THRESHOLDS = (10_000, 3, 1_000)
"""When the garbage collector of `oncelog serve` runs (`gc.set_threshold`). It looks at the 10,000
newest objects, at the 40,000 that were left of such steps, and at all after 40 million: up to 3 ms,
about 10 ms, and hardly ever, as what a request makes is freed without it.
"""

MAPPED_BUFFER_BYTES_MIN = 32 * 1024 * 1024
"""From this size on glibc maps each buffer separately and unmaps it when it is freed; the largest
value that glibc allows.
"""

SIMULATION_STEPS_PER_MOMENT_COUNT_MAX = 1_000_000
"""Callbacks that a simulation runs in one moment of virtual time before it calls it a live lock."""

SIMULATION_DISK_BYTES_MAX = 256 * 1024 * 1024
"""Capacity of a simulated disk; beyond it writes fail with ENOSPC."""

SIMULATION_UNSYNCED_CHANGES_COUNT_MAX = 4096
"""Unsynced changes of one file or folder that a simulated disk can still lose; when there are more,
the older half counts as synced.
"""

SIMULATION_OVERWRITTEN_BYTES_MAX = 16 * 1024 * 1024
"""Bytes that the unsynced changes of one simulated file replaced or cut off; beyond them the older
half of the changes counts as synced as well.
"""

SIMULATED_CHUNK_BYTES_MAX = 64 * 1024
"""Bytes that a simulated connection delivers at once."""

SIMULATED_SOCKET_BUFFER_BYTES = 256 * 1024
"""Bytes that a simulated machine receives for a process that does not read, give or take a chunk.
"""

SIMULATED_SEND_BUFFER_BYTES = 64 * 1024
"""Bytes that a simulated machine still sends for a process that has closed the connection."""
