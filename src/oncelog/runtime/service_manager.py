"""Tells the service manager that started this process how it is: systemd's sd_notify(3)."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

__all__ = ["notify"]

log = logging.getLogger(__name__)


def notify(state: str, environment: Mapping[str, str] = os.environ) -> None:
    """Tell it, ``READY=1`` or ``STOPPING=1``; nothing where no manager has asked for it.

    One that does not take it is named once in the log: a broker that serves goes on serving.
    """
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return
    # A name that begins with @ is one of Linux' abstract namespace.
    path = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.connect(path)
            manager.sendall(state.encode())
    except OSError as error:
        log.warning("the service manager at %s does not take %s: %s", address, state, error)
