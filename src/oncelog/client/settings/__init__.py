"""Kafka's setting names, for every client of ours.

`table` says which there are and which keyword each stands for, `names` turns what a user gave into
keywords, `security` makes TLS and SASL of their settings, `stores` reads certificates and keys.
"""

from oncelog.client.settings.names import Role, client_options, hide_secrets, kafka_names
from oncelog.client.settings.security import Security

__all__ = ["Role", "Security", "client_options", "hide_secrets", "kafka_names"]
