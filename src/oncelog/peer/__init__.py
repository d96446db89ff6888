"""Requests to a broker and their answers, over a framed connection.

Versions are negotiated, requests are pipelined, and one without an answer in time closes the
connection. This package knows headers, correlation ids and versions, never what a request means.
"""

from oncelog.peer.connection import Connection
from oncelog.peer.negotiation import PeerSupport

__all__ = ["Connection", "PeerSupport"]
