"""Limits on what a peer can demand before it is known who it is, as in `limits`."""

SCRAM_ITERATIONS_MIN = 4096
"""Fewer iterations (RFC 7677) would let a hostile broker guess the password from our proof."""

SCRAM_ITERATIONS_MAX = 1_000_000
"""More iterations of a key derivation than a hostile broker may ask for; these take half a second
in the executor. Apache Kafka allows 16,384.
"""

SASL_CHALLENGE_BYTES_MAX = 64 * 1024
"""Longest message of a broker during an authentication."""

TOKEN_ENDPOINT_TIMEOUT_S = 10
"""How long the token endpoint may take to respond."""

TOKEN_RESPONSE_BYTES_MAX = 1024 * 1024
"""Longest response of that endpoint."""

UNAUTHENTICATED_FRAME_BYTES_MAX = 64 * 1024
"""Largest frame of a client that has not named its mechanism of SASL yet; then it is
`sasl.server.max.receive.size`.
"""

REAUTHENTICATION_PAUSE_MS_MIN = 1_000
"""How long a client has to wait between two authentications of one connection, as in Kafka."""

USER_NAME_LENGTH_MAX = 1024
"""Longest name of a user with a SCRAM credential, and of the bearer of a token."""

SCRAM_STORED_ITERATIONS_MAX = 16_384
"""Most iterations of a credential that a broker stores, as in Kafka."""

SCRAM_SALT_BYTES_MAX = 1024
"""Longest salt of such a credential."""

TLS_HANDSHAKE_MS_MAX = 10_000
"""How long a client may take for the TLS handshake."""

CERTIFICATES_LOOK_MS = 5_000
"""Pause between two looks whether files of certificates have changed."""

ACL_TEXT_LENGTH_MAX = 1024
"""Longest name, principal and host of an ACL."""

ACLS_COUNT_MAX = 10_000
"""ACLs of one cluster."""

ACL_DECISIONS_COUNT_MAX = 1_000
"""Remembered decisions by ACLs about one principal at one address; then they are made again."""

ACL_CLIENTS_COUNT_MAX = 250
"""Principals at one address whose decisions are remembered."""

ACL_DECISION_NAME_LENGTH_MAX = 249
"""A decision about a longer name is not remembered: a client chooses ids of groups."""

ACL_COMPARISONS_COUNT_MAX = 1_000_000
"""Comparisons of a filter with an ACL that one request to delete ACLs may cause, 0.7 us each. What
names one ACL in full is looked up.
"""

ACLS_DELETED_LENGTH_MAX = 1_000_000
"""Characters of the ACLs that one request may delete: its reply has them, and is an event's."""

QUOTA_METERS_COUNT_MAX = 10_000
"""Clients whose use is measured for quotas, by user and client id; then idle ones are forgotten."""

CLIENT_QUOTAS_COUNT_MAX = 10_000
"""Entities with quotas in one cluster."""

QUOTA_NAME_LENGTH_MAX = 1024
"""Longest user and client id of a quota."""

AUDIT_REFUSALS_PER_S_MAX = 100
"""Lines that the audit log gets about refused requests in a second; the others are counted."""

AUDIT_NAME_LENGTH_MAX = 256
"""Most characters of a name that a line of the audit log shows."""
