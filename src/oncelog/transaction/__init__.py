"""The transaction coordinator.

Which producer holds a transactional id, and how its transactions end.

Pure. `TransactionCoordinatorShard` decides; `events` is its vocabulary; `states` has the table of
legal moves. It must not know of sockets, files, tasks or time, nor of the wire: handlers make
events from requests and answers from results.
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
