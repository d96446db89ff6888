"""Kafka's config names for all of our clients.

`table` lists them with the keyword of each, `names` converts a user's options to keywords,
`security` builds TLS and SASL from their configs, `stores` reads certificates and keys.
"""

from oncelog.client.settings.names import Role, client_options, hide_secrets, kafka_names
from oncelog.client.settings.security import Security

__all__ = ["Role", "Security", "client_options", "hide_secrets", "kafka_names"]
