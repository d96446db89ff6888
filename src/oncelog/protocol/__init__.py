"""Bytes to values and back: messages, record batches, records of the internal topics, hashes.

Pure: it knows no socket, file or clock. Produce, Fetch and the batch header, the hot path, are
codecs written by hand; every other message is kio's, which `messages` brings to one definition per
API. Bytes that the protocol does not allow raise `oncelog.core.errors.ProtocolError` and nothing
else.
"""
