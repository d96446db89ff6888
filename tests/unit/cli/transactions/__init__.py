"""Tests of the commands about transactions."""
