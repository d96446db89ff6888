"""What a handler is, and the table of them: one small module per API.

A handler module has one function ``handle(broker, request)``. Its kind decides how the connection
treats it (D13):

- a plain ``def`` answers at once: it returns the response (an object with the attributes of kio's
  newest class of that API), or, for the hand-written codecs of Produce and Fetch, the reply's
  buffers without the 4-byte size;
- it may return a `PendingReply` instead: the reply keeps its place, later requests go on meanwhile;
- ``async def`` (or any awaitable returned) holds back the later requests of the connection until it
  is done;
- ``None`` means that no reply is sent at all (Produce with acks=0).

Handler modules are imported when their API is first asked for: importing all of them would triple
the start-up time. This module must not know any single API's rules.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from oncelog.core.errors import require
from oncelog.protocol.api import ApiKey

if TYPE_CHECKING:
    from oncelog.broker.broker import Broker
    from oncelog.broker.net.connection import Connection
    from oncelog.protocol.messages import RequestHeader

__all__ = ["HANDLERS", "RAW_APIS", "Buffers", "Handler", "PendingReply", "Request", "handler_of"]

Buffers = bytes | bytearray | memoryview | Sequence[bytes | bytearray | memoryview]
"""A reply's frame without its 4-byte size: one buffer, or several that are written one after the
other.
"""


class Request:
    """One request as its handler sees it.

    `body` is kio's newest request class of the API, already upgraded from `header.api_version`; for
    `RAW_APIS` it is a writable `memoryview` of the frame from the body on (no copy: the frame
    belongs to this request alone).
    """

    __slots__ = ("api", "body", "connection", "header")

    def __init__(
        self, api: ApiKey, header: RequestHeader, body: Any, connection: Connection
    ) -> None:
        self.api = api
        self.header = header
        self.body = body
        self.connection = connection

    @property
    def version(self) -> int:
        """The version that the client asked in."""
        return self.header.api_version

    @property
    def client_id(self) -> str:
        """The client's own name for itself, empty when it gave none."""
        return self.header.client_id or ""


class PendingReply:
    """A place in a connection's reply order, to be filled later, exactly once.

    `complete` takes what a handler returns (buffers for the hand-written codecs, a response object
    otherwise). After the connection is lost `complete` does nothing, and `cancelled` is true so
    that work can be dropped; `on_cancel`, if set, is called once at that moment.
    """

    __slots__ = ("_deliver", "cancelled", "done", "on_cancel", "value")

    def __init__(self) -> None:
        self.done = False
        self.cancelled = False
        self.value: Any = None
        self.on_cancel: Callable[[], None] | None = None
        self._deliver: Callable[[Any], None] | None = None

    def complete(self, value: Any) -> None:
        """Fill the place. The reply leaves as soon as those before it have left."""
        if self.cancelled:
            return
        require(not self.done, "D13: a pending reply was completed twice")
        self.done = True
        self.on_cancel = None
        if self._deliver is None:
            self.value = value
        else:
            self._deliver(value)

    def attach(self, deliver: Callable[[Any], None]) -> None:
        """Called by the dispatcher, once: where the value goes.

        A value that came earlier goes there at once.
        """
        self._deliver = deliver
        if self.done:
            deliver(self.value)

    def cancel(self) -> None:
        """Called by the connection when the peer is gone."""
        if self.done or self.cancelled:
            return
        self.cancelled = True
        callback, self.on_cancel = self.on_cancel, None
        if callback is not None:
            callback()


Handler = Callable[["Broker", Request], Any | Awaitable[Any]]

RAW_APIS: Final = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})
"""APIs whose handlers parse the body and encode the reply themselves."""

HANDLERS: Final[dict[ApiKey, str]] = {
    ApiKey.PRODUCE: "produce",
    ApiKey.FETCH: "fetch",
    ApiKey.LIST_OFFSETS: "list_offsets",
    ApiKey.METADATA: "metadata",
    ApiKey.OFFSET_COMMIT: "offset_commit",
    ApiKey.OFFSET_FETCH: "offset_fetch",
    ApiKey.FIND_COORDINATOR: "find_coordinator",
    ApiKey.JOIN_GROUP: "join_group",
    ApiKey.HEARTBEAT: "heartbeat",
    ApiKey.LEAVE_GROUP: "leave_group",
    ApiKey.SYNC_GROUP: "sync_group",
    ApiKey.API_VERSIONS: "api_versions",
    ApiKey.CREATE_TOPICS: "create_topics",
    ApiKey.DELETE_TOPICS: "delete_topics",
    ApiKey.INIT_PRODUCER_ID: "init_producer_id",
    ApiKey.ADD_PARTITIONS_TO_TXN: "add_partitions_to_txn",
    ApiKey.ADD_OFFSETS_TO_TXN: "add_offsets_to_txn",
    ApiKey.END_TXN: "end_txn",
    ApiKey.TXN_OFFSET_COMMIT: "txn_offset_commit",
    ApiKey.DESCRIBE_CONFIGS: "describe_configs",
    ApiKey.DESCRIBE_CLUSTER: "describe_cluster",
    ApiKey.DESCRIBE_GROUPS: "describe_groups",
    ApiKey.LIST_GROUPS: "list_groups",
    ApiKey.DELETE_GROUPS: "delete_groups",
    ApiKey.OFFSET_DELETE: "offset_delete",
    ApiKey.CREATE_PARTITIONS: "create_partitions",
    ApiKey.ALTER_CONFIGS: "alter_configs",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "incremental_alter_configs",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "offset_for_leader_epoch",
    ApiKey.DELETE_RECORDS: "delete_records",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "describe_topic_partitions",
    ApiKey.DESCRIBE_LOG_DIRS: "describe_log_dirs",
    ApiKey.ELECT_LEADERS: "elect_leaders",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "describe_client_quotas",
    ApiKey.DESCRIBE_ACLS: "describe_acls",
    ApiKey.CREATE_ACLS: "create_acls",
    ApiKey.DELETE_ACLS: "delete_acls",
    ApiKey.WRITE_TXN_MARKERS: "write_txn_markers",
    ApiKey.DESCRIBE_PRODUCERS: "describe_producers",
    ApiKey.DESCRIBE_TRANSACTIONS: "describe_transactions",
    ApiKey.LIST_TRANSACTIONS: "list_transactions",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "list_partition_reassignments",
    ApiKey.LIST_CONFIG_RESOURCES: "list_config_resources",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "describe_user_scram_credentials",
}
"""The module (in this package) that answers each API. ApiVersions announces exactly these keys."""

_loaded: dict[ApiKey, Handler] = {}


def handler_of(api: ApiKey) -> Handler | None:
    """The handler function of `api`, imported on first use; None when we do not answer that API."""
    handler = _loaded.get(api)
    if handler is None:
        name = HANDLERS.get(api)
        if name is None:
            return None
        module = importlib.import_module(f"oncelog.broker.apis.{name}")
        handler = _loaded[api] = module.handle
    return handler
