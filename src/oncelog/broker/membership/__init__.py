"""A broker in the cluster: what it knows of the metadata, and what it has applied of it.

It writes nothing to the store but where it is reached: all else only the controller does.
"""
