"""Who a client is, by SASL or a certificate, and what it may do, by ACLs.

`authentication` is the state machine of a connection, `authorizer` decides by ACLs, most others are
mechanisms of SASL. Pure: time, random nonces, credentials and keys come in as arguments.
"""
