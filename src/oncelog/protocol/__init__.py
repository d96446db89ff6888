"""Encodes and decodes messages, record batches, records of the internal topics, and hashes.

Pure: it knows no socket, file or clock. Produce, Fetch and the batch header, the hot path, are
codecs written by hand; every other message is declared once for all versions in `messages`, and
`codec` derives how each version is read and written. Invalid bytes raise only
`oncelog.core.errors.ProtocolError`.
"""
