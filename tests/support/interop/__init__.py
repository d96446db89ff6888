"""Python clients, stock ones and our own, behind one shape: one suite asks the same of each."""

from tests.support.interop.aio import Aiokafka
from tests.support.interop.base import (
    FENCED,
    WAIT_S,
    Client,
    Reader,
    Received,
    Record,
    Refused,
    Sender,
    fresh,
    read_to_end,
    wait_until,
)
from tests.support.interop.librdkafka import ConfluentKafka
from tests.support.interop.own import Own
from tests.support.interop.python import KafkaPython

CLIENTS: dict[str, type[Client]] = {
    made.name: made for made in (ConfluentKafka, KafkaPython, Aiokafka, Own)
}

__all__ = [
    "CLIENTS",
    "FENCED",
    "WAIT_S",
    "Client",
    "Reader",
    "Received",
    "Record",
    "Refused",
    "Sender",
    "fresh",
    "read_to_end",
    "wait_until",
]
