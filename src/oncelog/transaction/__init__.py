"""The transaction coordinator: it fences producers and ends transactions.

Pure. `TransactionCoordinatorShard` decides; `events` defines its events and results; `states` has
the table of legal moves. It knows no sockets, files, tasks, clocks or wire formats: handlers make
events from requests and replies from results.
"""

from oncelog.transaction.events import (
    AddPartitions,
    AddPartitionsResult,
    DescribeTransaction,
    DescribeTransactionResult,
    EndTxn,
    EndTxnResult,
    InitProducerId,
    InitProducerIdResult,
    ListedTransaction,
    ListTransactions,
    ListTransactionsResult,
    MarkersWritten,
    Notice,
    SendMarkers,
)
from oncelog.transaction.shard import TransactionCoordinatorShard
from oncelog.transaction.states import LEGAL_PREVIOUS, TransactionMetadata, TransactionState
from oncelog.transaction.store import TransactionConfig

__all__ = [
    "LEGAL_PREVIOUS",
    "AddPartitions",
    "AddPartitionsResult",
    "DescribeTransaction",
    "DescribeTransactionResult",
    "EndTxn",
    "EndTxnResult",
    "InitProducerId",
    "InitProducerIdResult",
    "ListTransactions",
    "ListTransactionsResult",
    "ListedTransaction",
    "MarkersWritten",
    "Notice",
    "SendMarkers",
    "TransactionConfig",
    "TransactionCoordinatorShard",
    "TransactionMetadata",
    "TransactionState",
]
