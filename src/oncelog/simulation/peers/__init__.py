"""Scripted clients that speak as stock clients do, at the level of requests.

Each role is a coroutine `run(context)` that writes down what it sees as events of the history.
"""
