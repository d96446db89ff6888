"""AppliedRevision, between brokers of Oncelog: Kafka has no such API."""

from oncelog.core.values import message
from oncelog.protocol.fields import Int64, RequestFor


@message
class AppliedRevisionRequest(RequestFor["AppliedRevisionResponse"]):
    """AppliedRevision, versions 0-1: how far a broker is; it is to read up to `revision` first.

    Version 1 asks for an answer once its folders are made too.
    """

    revision: Int64 = -1


@message
class AppliedRevisionResponse:
    """AppliedRevision's response: the revision of the metadata that the broker answers from."""

    revision: Int64 = -1
