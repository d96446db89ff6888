"""Stock clients with right and wrong credentials, certificates and protocols, at either broker."""

from tests.support.logins.brokers import Doors, kafka_doors, oncelog_doors
from tests.support.logins.cases import CASES, Case, Papers
from tests.support.logins.clients import PYTHON_CLIENTS, outcomes_of

__all__ = [
    "CASES",
    "PYTHON_CLIENTS",
    "Case",
    "Doors",
    "Papers",
    "kafka_doors",
    "oncelog_doors",
    "outcomes_of",
]
