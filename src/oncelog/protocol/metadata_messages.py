"""Metadata's messages with the fields that only versions 8 to 10 have.

Those versions ask for the cluster's authorized operations (KIP-430); DescribeCluster took that over
in version 11 (KIP-700), and the newest classes of the schema know nothing of it. All other fields
are those of version 13.
"""

from dataclasses import dataclass
from typing import Final

from kio.schema.metadata.v13 import request, response

from oncelog.core.limits import INT32_MAX

__all__ = ["OPERATIONS_NOT_ASKED", "MetadataRequest", "MetadataResponse"]

OPERATIONS_NOT_ASKED: Final = -INT32_MAX - 1
"""What stands for authorized operations where nobody asked for them (KIP-430)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest(request.MetadataRequest):
    """Metadata, all versions."""

    include_cluster_authorized_operations: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse(response.MetadataResponse):
    """Metadata's response, all versions."""

    cluster_authorized_operations: int = OPERATIONS_NOT_ASKED
