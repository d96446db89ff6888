"""Asks what the client of each request may do, on a broker with an authorizer (`Guard`).

The column `needs` of `oncelog.broker.apis.HANDLERS` says what each API needs. A need of the request
as a whole is asked for here; where parts of a request may be refused, a function with the API's
name does it, in the module that the row names. It takes the refused parts out of the request, has
the handler serve the rest, and merges the refusals into the response in the request's order: the
handlers know nothing of ACLs. Where a name may not be described, whether it exists is not looked
at. What each API needs, and the errors, are those of Kafka's `KafkaApis` and `ControllerApis`.

A broker without an authorizer does not import this package.
"""

from oncelog.broker.access.guard import Guard

__all__ = ["Guard"]
