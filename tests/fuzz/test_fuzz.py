"""A small part of the fuzzing, the same in every run; `python -m tests.fuzz` does the large one."""

import random

import pytest

from oncelog.protocol.api import ApiKey
from oncelog.protocol.codec import parse_request, parse_request_header
from tests.fuzz import batches, campaign, sockets
from tests.fuzz.campaign import Report
from tests.fuzz.corpus import Corpus, Known, served

pytestmark = pytest.mark.slow

FRAMES = 6_000
SOCKET_FRAMES = 300
SEED = 20_261


def told(report: Report) -> str:
    rerun = f"python -m tests.fuzz --frames {report.frames} --seed {report.seed}"
    return "\n".join(["", *map(str, report.findings), f"again: {rerun}"])


@pytest.mark.alone
def test_no_frame_harms_the_broker() -> None:
    report = campaign.run(FRAMES, SEED)
    assert report.clean, told(report)
    assert report.frames == FRAMES
    # The frames got somewhere: every API that is served has answered.
    assert set(report.answered) == {api.name for api, _ in served()}


@pytest.mark.alone
def test_no_frame_harms_a_broker_behind_sockets() -> None:
    report = sockets.run(SOCKET_FRAMES, SEED)
    assert report.clean, told(report)


def test_what_is_mutated_is_valid_to_begin_with() -> None:
    corpus = Corpus(random.Random(SEED), Known())
    for api, version in served():
        for _ in range(3):
            frame = corpus.frame(api, version)
            header = parse_request_header(frame.data)
            assert (header.api_key, header.api_version) == (api, version)
            assert header.body_offset == frame.body
            if api not in (ApiKey.PRODUCE, ApiKey.FETCH):
                parse_request(api, version, frame.data, frame.body)


def test_bombs_are_small_and_unpack_to_much() -> None:
    made = batches.bombs()
    assert len(made) >= 9
    assert max(map(len, made)) < 1024 * 1024 < batches.BOMB_BYTES
