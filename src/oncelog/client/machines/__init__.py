"""The client's pure machines: they decide, the shells around them do.

No sockets, tasks, clocks or randomness here: time comes in as an argument, and waiting is somebody
else's work.
"""
