"""Kafka's config names for all of our clients.

`table` lists them with the keyword of each, `configs` has their types, `names` converts a user's
options to keywords, `elsewhere` knows how other clients spell them, `addresses` parses bootstrap
servers, `security` builds TLS and SASL from their configs, `stores` reads certificates and keys.
"""

from oncelog.client.settings.addresses import parse_bootstrap_servers
from oncelog.client.settings.configs import (
    AdminConfig,
    ConnectionOptions,
    ConsumerConfig,
    DriverConfig,
    ProducerConfig,
)
from oncelog.client.settings.names import Role, client_options, hide_secrets, kafka_names
from oncelog.client.settings.security import Security

__all__ = [
    "AdminConfig",
    "ConnectionOptions",
    "ConsumerConfig",
    "DriverConfig",
    "ProducerConfig",
    "Role",
    "Security",
    "client_options",
    "hide_secrets",
    "kafka_names",
    "parse_bootstrap_servers",
]
