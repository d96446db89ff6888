"""SASL, the client's side: who we are, in the mechanisms that Kafka knows.

`mechanisms` and `scram` decide what to say (pure), `tokens` gets bearer tokens, `settings` holds
what a connection needs, `authentication` carries it over a connection.
"""

from oncelog.peer.sasl.exchange import AuthenticationError, Exchange
from oncelog.peer.sasl.settings import Sasl

__all__ = ["AuthenticationError", "Exchange", "Sasl"]
