"""The controller's office on a broker: it is won here, and its decisions are written here.

`oncelog.controller` decides; this package knows no rule of its own.
"""
