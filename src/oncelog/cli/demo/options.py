"""Defines the options that the demo passes to its Spark program."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The options of the Spark program. Topics exist already; `checkpoint` is a local folder."""

    bootstrap_servers: str
    application_id: str
    input_topic: str
    delayed_topic: str
    daily_topic: str
    checkpoint: str
    progress_path: str
    records_per_batch: int

    def encode(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))
