"""The broker's side of SASL: who a client is.

`authentication` is the state machine of a connection, the others are its mechanisms. Pure: time,
random nonces, credentials and keys come in as arguments.
"""
