"""Compaction: a log retains the newest record of each key (Kafka's `LogCleaner`).

`selection` chooses a log, `Cleaning` does one cleaning in steps, `storage/swap.py` puts the new
segments in place. The broker's task is `broker/partitions/cleaner.py`; `clean_log` cleans a folder
that no broker uses.
"""

from oncelog.storage.cleaner.batch_filter import CleanerStats
from oncelog.storage.cleaner.checkpoint import read_clean_offsets, write_clean_offsets
from oncelog.storage.cleaner.cleaning import Cleaning, Uncleanable
from oncelog.storage.cleaner.offline import clean_log
from oncelog.storage.cleaner.selection import LogToClean, filthiest, log_to_clean
from oncelog.storage.cleaner.settings import CleanerSettings

__all__ = [
    "CleanerSettings",
    "CleanerStats",
    "Cleaning",
    "LogToClean",
    "Uncleanable",
    "clean_log",
    "filthiest",
    "log_to_clean",
    "read_clean_offsets",
    "write_clean_offsets",
]
