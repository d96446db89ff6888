"""What a connection asks of its listener, and of the part that serves its requests."""

from __future__ import annotations

import asyncio
from typing import Protocol, TypeVar

from oncelog.broker.net.request import Request

__all__ = ["AcceptorOf", "StarterOf"]

ConnectionT_contra = TypeVar("ConnectionT_contra", contravariant=True)


class AcceptorOf(Protocol[ConnectionT_contra]):
    """A listener: it applies the connection limits and counts."""

    name: str
    loop: asyncio.AbstractEventLoop
    frame_bytes_max: int
    bytes_in: int
    bytes_out: int

    def note_unread(self, change_bytes: int) -> None:
        """Count reply bytes that a stalled peer has not read."""

    def admit(self, connection: ConnectionT_contra, transport: asyncio.Transport) -> bool:
        """Whether the connection may stay; its principal is set."""

    def forget(self, connection: ConnectionT_contra) -> None:
        """Remove a connection that has ended."""


class StarterOf(Protocol[ConnectionT_contra]):
    """Starts the request in a frame, and handles its late reply."""

    def start(self, connection: ConnectionT_contra, frame: bytearray) -> None:
        """Start the request: `answer`, `hold` or `run` it, or close the connection."""

    def settle(self, connection: ConnectionT_contra, request: Request[object]) -> None:
        """Handle the completed `Pending` of `request`: `reply` to it, or `hold` it again."""
