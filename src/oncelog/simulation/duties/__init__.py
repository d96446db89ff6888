"""Watches what a transaction coordinator owes, decision by decision.

Written from what the protocol says, without code of `oncelog.transaction`: `moves` says what each
record has to hold, `known` what is known of one id, `transactions` compares.
"""
