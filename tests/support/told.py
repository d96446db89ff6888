"""What each broker of a cluster tells of a topic, asked on a connection of its own."""

from __future__ import annotations

import socket
from typing import NamedTuple

from oncelog.protocol.api import ApiKey
from oncelog.protocol.codec import encode_request, parse_response, parse_response_header
from oncelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

__all__ = ["State", "Told", "ask"]

VERSION = 9
TIMEOUT_S = 1.0


class State(NamedTuple):
    """A partition. States of later epochs are greater."""

    leader_epoch: int
    leader: int
    in_sync: tuple[int, ...]


class Told(NamedTuple):
    """One broker's answer: the partitions in their order, and who is the controller."""

    states: tuple[State, ...]
    controller: int


def ask(port: int, topic: str) -> Told | None:
    """Ask one broker on loopback; None if it does not answer, or does not know the topic."""
    asked = (MetadataRequestTopic(name=topic),)
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    frame = encode_request(ApiKey.METADATA, VERSION, 1, "told", request)
    try:
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
            connection.sendall(len(frame).to_bytes(4, "big") + frame)
            with connection.makefile("rb") as stream:
                answer = stream.read(int.from_bytes(stream.read(4), "big"))
    except OSError:
        return None
    if not answer:
        return None
    _, offset = parse_response_header(ApiKey.METADATA, VERSION, answer)
    told: MetadataResponse = parse_response(ApiKey.METADATA, VERSION, answer, offset)
    partitions = sorted(told.topics[0].partitions, key=lambda each: each.partition_index)
    states = tuple(
        State(each.leader_epoch, each.leader_id, tuple(sorted(each.isr_nodes)))
        for each in partitions
    )
    return Told(states, told.controller_id) if states else None
