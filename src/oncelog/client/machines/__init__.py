"""The client's pure machines: they decide, and the shells around them do the I/O.

No sockets, tasks, clocks or randomness here: time is an argument, and the callers wait.
"""
