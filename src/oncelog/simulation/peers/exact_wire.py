"""A client that uses connections in odd ways, and knows each byte that has to come back.

It asks what always has the same answer: of the cluster, of users that do not exist, and of a topic
of its own with one large batch. Requests come in pieces, many at once, also while the client does
not read; answers have to come whole, in order, each with its request's number (D13). What is no
request closes the connection, after the answers to what came before it.

At the end, when all faults are over, nothing else may close a connection or delay an answer.

Parameters: `strict` (False), `pace_ms` (300), those of `wire`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from oncelog.core.errors import ErrorCode
from oncelog.core.limits import CONNECTION_PENDING_REPLIES_COUNT_MAX
from oncelog.protocol.api import ApiKey
from oncelog.protocol.codec import encode_request, parse_response_header
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
    parse_fetch_response,
)
from oncelog.protocol.messages import (
    api_versions,
    create_topics,
    delete_topics,
    describe_acls,
    describe_user_scram_credentials,
    list_partition_reassignments,
)
from oncelog.protocol.produce import encode_produce_request, parse_produce_response
from oncelog.protocol.record import Record, build_batch
from oncelog.simulation.context import ClientContext
from oncelog.simulation.peers.exact_asking import EXACT_DEFAULTS, ExactAsker
from oncelog.simulation.peers.flavors import JAVA
from oncelog.simulation.peers.raw_peer import RawPeer
from oncelog.simulation.peers.wire import LostError, PeerWire

__all__ = ["ExactWire", "run"]

_BATCH_BYTES: Final = 200_000
_TOPICS_COUNT_MAX: Final = 4
_PRODUCE_VERSION: Final = 9
_FETCH_VERSIONS: Final = (4, 7, 11, 12)
"""Those by name, so that the question does not depend on the topic's id."""
_WAIT_MS: Final = 15
_PATIENCE_S: Final = 8.0
_READS_LATE_S: Final = 0.15
_DEATH_S: Final = 0.5
_UNKNOWN_API: Final = 999
_ODD_VERSION: Final = 99
_NAMES_COUNT: Final = 2_000
_CALM_STEPS_COUNT: Final = 5


class _RawQuestion(NamedTuple):
    """A request whose answer is always the same."""

    name: str
    api: ApiKey
    version: int
    request: object

    def frame(self, number: int) -> bytes:
        """Return the request with its size."""
        if isinstance(self.request, FetchRequest):
            data = encode_fetch_request(self.version, number, "raw", self.request)
        else:
            data = encode_request(self.api, self.version, number, "raw", self.request)
        return _sized(data)


async def run(context: ClientContext) -> None:
    """Use connections oddly until told to stop, and delete the topic."""
    client = ExactWire(context.with_defaults(EXACT_DEFAULTS))
    while not context.stopping():
        await context.pause(0, 2 * float(context.get("pace_ms", 300)))
        await client.act()
    await client.wait_for_calm()
    for _ in range(_CALM_STEPS_COUNT):
        await client.act()
    await client.delete_topic()
    client.wire.close()
    context.progress("settled")


class ExactWire(ExactAsker):
    """One client, its topic and the answers that it has had."""

    def __init__(self, context: ClientContext) -> None:
        super().__init__(context, PeerWire(context, JAVA))
        self._prefix = f"raw-{context.name.replace('.', '-')}-"
        self._topics_count = 0
        self._topic = ""
        self._batch = b""
        self._known: dict[tuple[str, int], bytes] = {}
        """The answers, by question and version, without the number of the request."""
        self._number = 0

    async def act(self) -> None:
        """Use one connection in one way."""
        try:
            if not self._topic and self._topics_count < _TOPICS_COUNT_MAX:
                await self._create()
        except LostError:
            self._topic = ""
            return
        way = self.context.rng.choices(
            (
                self._in_pieces,
                self._at_once,
                self._read_late,
                self._misbehave,
                self._hang_up,
                self._many_waits,
            ),
            (4, 4, 2, 5, 2, 1),
        )[0]
        try:
            peer = await RawPeer.open(self.context)
        except OSError:
            return
        try:
            await way(peer)
        finally:
            peer.hang_up()

    # --- its topic --------------------------------------------------------------------

    async def _create(self) -> None:
        """Create a topic and write one large batch into it. Raises `LostError`."""
        self._topics_count += 1
        name = f"{self._prefix}{self._topics_count}"
        topic = create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        request = create_topics.CreateTopicsRequest(topics=(topic,), timeout_ms=30_000)
        await self.ask(ApiKey.CREATE_TOPICS, request)
        connection = await self.wire.open()
        value = self.context.rng.randbytes(50) * (_BATCH_BYTES // 50)
        now_ms = int(self.context.clock.now_ms())
        self._batch = bytes(build_batch([Record(0, now_ms, None, value, [])]))
        buffers = encode_produce_request(
            _PRODUCE_VERSION,
            connection.next_correlation_id(),
            self.context.name,
            transactional_id=None,
            acks=-1,
            timeout_ms=30_000,
            topics=[(name, None, [(0, self._batch)])],
        )
        future = connection.submit(ApiKey.PRODUCE, _PRODUCE_VERSION, buffers)
        body = await self.wire.wait(connection, future, self.wire.timeout_ms)
        (answer,) = parse_produce_response(body, _PRODUCE_VERSION).topics
        (told,) = answer.partitions
        self.expect(
            (told.error, told.base_offset) == (0, 0), lambda: f"Produce to a new topic gave {told}"
        )
        self._topic = name if told.error == 0 else ""
        self._known = {key: body for key, body in self._known.items() if key[0] != "fetch"}

    async def delete_topic(self) -> None:
        """Delete the topic; a lost answer does no harm."""
        if not self._topic:
            return
        state = delete_topics.DeleteTopicState(name=self._topic)
        request = delete_topics.DeleteTopicsRequest(topics=(state,), timeout_ms=30_000)
        try:
            await self.ask(ApiKey.DELETE_TOPICS, request)
        except LostError:
            return

    # --- questions --------------------------------------------------------------------

    def _fetch(self, offset: int) -> _RawQuestion:
        """Fetch the batch, or wait where there is nothing."""
        version = self.context.rng.choice(_FETCH_VERSIONS)
        partition = FetchPartition(0, offset, 10_000_000)
        request = FetchRequest(_WAIT_MS, 1, topics=[FetchTopic(self._topic, None, [partition])])
        return _RawQuestion("fetch" if offset == 0 else "wait", ApiKey.FETCH, version, request)

    def _question(self) -> _RawQuestion:
        rng = self.context.rng
        kind = rng.choices(
            ("versions", "acls", "moves", "users", "fetch", "wait"), (5, 5, 5, 2, 1, 2)
        )[0]
        if kind in ("fetch", "wait") and self._topic:
            return self._fetch(int(kind == "wait"))
        if kind == "acls":
            acls = describe_acls.DescribeAclsRequest()
            return _RawQuestion(kind, ApiKey.DESCRIBE_ACLS, rng.randint(1, 3), acls)
        if kind == "moves":
            moves = list_partition_reassignments.ListPartitionReassignmentsRequest()
            return _RawQuestion(kind, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, moves)
        if kind == "users":
            return self.users(rng.choice((1, 3, 60)))
        request = api_versions.ApiVersionsRequest()
        return _RawQuestion("versions", ApiKey.API_VERSIONS, rng.randint(0, 2), request)

    def users(self, count: int) -> _RawQuestion:
        """Ask for so many users that do not exist."""
        users = describe_user_scram_credentials
        names = tuple(users.UserName(name=f"nobody-{place:040}") for place in range(count))
        request = users.DescribeUserScramCredentialsRequest(users=names)
        api = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
        return _RawQuestion(f"users {count}", api, 0, request)

    def numbered(self, questions: Sequence[_RawQuestion]) -> list[tuple[int, _RawQuestion]]:
        """Give each question the number of its request."""
        numbered = []
        for question in questions:
            self._number += 1
            numbered.append((self._number, question))
        return numbered

    def judge(self, peer: RawPeer, asked: Sequence[tuple[int, _RawQuestion]]) -> None:
        """What has come is the beginning of the answers, each byte of it."""
        self.expect(
            len(peer.frames) <= len(asked),
            lambda: f"{len(asked)} requests had {len(peer.frames)} answers",
        )
        for frame, (number, question) in zip(peer.frames, asked, strict=False):
            told = int.from_bytes(frame[:4], "big", signed=True)
            self.expect(
                told == number,
                lambda told=told, number=number: (  # type: ignore[misc]
                    f"the answer to request {number} has the number {told}"
                ),
            )
            self._judge_body(question, frame)

    def _judge_body(self, question: _RawQuestion, frame: bytes) -> None:
        key = question.name, question.version
        if key not in self._known:
            self._known[key] = frame[4:]
            if question.api is ApiKey.FETCH:
                self._judge_fetch(question, frame)
            return
        self.expect(
            frame[4:] == self._known[key],
            lambda: (
                f"{question.api.name} v{question.version} gave {len(frame)} bytes other than "
                f"before: {frame[4:60]!r}"
            ),
        )

    def _judge_fetch(self, question: _RawQuestion, frame: bytes) -> None:
        _, position = parse_response_header(ApiKey.FETCH, question.version, frame)
        answer = parse_fetch_response(frame, question.version, position)
        records = [bytes(p.records or b"") for t in answer.topics for p in t.partitions]  # type: ignore[arg-type]
        wanted = self._batch if question.name == "fetch" else b""
        self.expect(
            answer.error is ErrorCode.none and [part[16:] for part in records] == [wanted[16:]],
            lambda: f"Fetch v{question.version} gave {answer}",
        )

    async def _is_answered(
        self, peer: RawPeer, asked: Sequence[tuple[int, _RawQuestion]], what: str
    ) -> None:
        came = await peer.wait(len(asked), _PATIENCE_S)
        self.judge(peer, asked)
        if not came:
            # A broker that has died closes all connections, one after the other.
            await asyncio.sleep(_DEATH_S)
        self.expect(
            came or not self.is_undisturbed,
            lambda: (
                f"{what}: {len(peer.frames)} of {len(asked)} answers came, "
                f"the connection is {'closed' if peer.is_closed else 'open'}"
            ),
        )

    # --- ways -------------------------------------------------------------------------

    async def _in_pieces(self, peer: RawPeer) -> None:
        """Send requests in pieces of any size, with pauses, a large one among them."""
        rng = self.context.rng
        questions = [self._question() for _ in range(rng.randint(1, 5))]
        if rng.random() < 0.3:
            questions.insert(rng.randint(0, len(questions)), self.users(_NAMES_COUNT))
        asked = self.numbered(questions)
        data = b"".join(question.frame(number) for number, question in asked)
        position = 0
        while position < len(data) and not peer.is_closed:
            size = rng.choice((1, 2, 3, 5, 40, 5_000, 70_000))
            peer.send(data[position : position + size])
            position += size
            if rng.random() < 0.5:
                await self.context.pause(0, 4)
        await self._is_answered(peer, asked, "requests in pieces")

    async def _at_once(self, peer: RawPeer) -> None:
        """Send many requests in one write."""
        asked = self.numbered([self._question() for _ in range(self.context.rng.randint(2, 40))])
        peer.send(b"".join(question.frame(number) for number, question in asked))
        await self._is_answered(peer, asked, "requests at once")

    async def _read_late(self, peer: RawPeer) -> None:
        """Do not read while answers of more bytes come than a broker keeps for one client."""
        questions = [self._question() for _ in range(5)]
        if self._topic:
            questions[2:2] = [self._fetch(0)] * self.context.rng.choice((2, 8, 14))
        asked = self.numbered(questions)
        peer.pause()
        for number, question in asked:
            peer.send(question.frame(number))
            if self.context.chance(0.2):
                await self.context.pause(1, 30)
        await asyncio.sleep(_READS_LATE_S)
        peer.resume()
        await self._is_answered(peer, asked, "a client that reads late")

    async def _many_waits(self, peer: RawPeer) -> None:
        """Send more requests that wait than a broker takes at a time from one client."""
        if not self._topic:
            return
        count = CONNECTION_PENDING_REPLIES_COUNT_MAX + self.context.rng.randint(0, 20)
        asked = self.numbered([self._fetch(1)] * count)
        begun_s = asyncio.get_running_loop().time()
        for number, question in asked:
            peer.send(question.frame(number))
        await self._is_answered(peer, asked, "many that wait")
        took_ms = (asyncio.get_running_loop().time() - begun_s) * 1000
        self.expect(
            took_ms >= _WAIT_MS - 1 or not peer.frames,
            lambda: f"fetches that wait {_WAIT_MS} ms took {took_ms:.1f} ms",
        )

    async def _hang_up(self, peer: RawPeer) -> None:
        """Ask and go, before there is an answer."""
        asked = self.numbered([self._question() for _ in range(self.context.rng.randint(1, 4))])
        if self._topic:
            asked += self.numbered([self._fetch(1)])
        for number, question in asked:
            peer.send(question.frame(number))
        await self.context.pause(0, 3)
        peer.hang_up()

    async def _misbehave(self, peer: RawPeer) -> None:
        """Send what is no request: what came before it is answered, then the connection closes."""
        rng = self.context.rng
        asked = self.numbered([self._question() for _ in range(rng.randint(0, 3))])
        # A fetch may have to wait for the disk, and the connection closes meanwhile.
        good = [question for _, question in asked if question.name not in ("wait", "fetch")]
        asked = self.numbered(good)
        later = self.numbered([self._question()])
        kind = rng.choice(tuple(_BAD))
        data = b"".join(question.frame(number) for number, question in asked)
        peer.send(data + _BAD[kind] + later[0][1].frame(later[0][0]))
        if kind == "version of ApiVersions":
            await self._is_told(peer, asked)
            return
        is_closed = await peer.wait_closed(_PATIENCE_S)
        self.judge(peer, asked)
        if len(peer.frames) < len(asked):
            await asyncio.sleep(_DEATH_S)
        self.expect(
            (is_closed and len(peer.frames) == len(asked)) or not self.is_undisturbed,
            lambda: (
                f"{kind} after {len(asked)} requests: {len(peer.frames)} answers, the connection "
                f"is {'closed' if is_closed else 'open'}"
            ),
        )

    async def _is_told(self, peer: RawPeer, asked: Sequence[tuple[int, _RawQuestion]]) -> None:
        """ApiVersions in a version that there is not is answered in version 0 (KIP-511)."""
        came = await peer.wait(len(asked) + 2, _PATIENCE_S)
        known = self._known.get(("versions", 0))
        if not came:
            await asyncio.sleep(_DEATH_S)
            self.expect(not self.is_undisturbed, lambda: "ApiVersions v99 was not answered")
            return
        told = peer.frames[len(asked)]
        code = int.from_bytes(told[4:6], "big")
        self.expect(
            told[:4] == _ODD_NUMBER.to_bytes(4, "big")
            and code == ErrorCode.unsupported_version
            and (known is None or told[6:] == known[2:]),
            lambda: f"ApiVersions v99 gave {told[:80]!r}",
        )


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


_ODD_NUMBER: Final = 77


def _header(api: int, version: int) -> bytes:
    """Return a request without a body, with the first kind of header."""
    numbers = api.to_bytes(2, "big") + version.to_bytes(2, "big") + _ODD_NUMBER.to_bytes(4, "big")
    return _sized(numbers + (3).to_bytes(2, "big") + b"raw")


_BAD: Final = {
    "a frame that is too large": (2**30).to_bytes(4, "big") + b"x" * 20,
    "a negative size": (-5).to_bytes(4, "big", signed=True) + b"x" * 20,
    "an unknown API": _header(_UNKNOWN_API, 0),
    "an unknown version": _header(ApiKey.METADATA, _ODD_VERSION),
    "no header": _sized(b"\x00\x03"),
    "no body": _header(ApiKey.CREATE_TOPICS, 2),
    "an array without an end": _sized(_header(ApiKey.DELETE_RECORDS, 0)[4:] + b"\x7f\xff\xff\xff"),
    "version of ApiVersions": _header(ApiKey.API_VERSIONS, _ODD_VERSION),
}
