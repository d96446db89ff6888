"""The client's side of SASL, in Kafka's mechanisms.

`mechanisms` and `scram` compute the messages (pure), `tokens` gets bearer tokens, `settings` holds
a connection's configs, `authentication` exchanges the messages.
"""

from oncelog.peer.sasl.exchange import Exchange, SaslAuthenticationError
from oncelog.peer.sasl.settings import Sasl

__all__ = ["Exchange", "Sasl", "SaslAuthenticationError"]
