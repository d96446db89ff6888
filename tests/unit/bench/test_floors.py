"""What a broker's CPU cannot go below is measured in each way, at each size."""

import tempfile

import pytest

from bench import floors


@pytest.mark.slow
def test_each_way_is_measured_at_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floors, "FILE_SIZE", 2 << 20)
    monkeypatch.setattr(floors, "REQUESTS_COUNT", 20)
    monkeypatch.setattr(floors, "TURNS_COUNT", 2)
    with tempfile.TemporaryFile() as file:
        file.write(bytes(floors.FILE_SIZE))
        file.flush()
        found = floors.Floors(file.fileno())
        found.run()
        file.seek(0)
        assert file.read() == bytes(floors.FILE_SIZE)
    bulk = ["receive", "receive, CRC-32C, write", "send", "read, send", "sendfile"]
    rows = [(name, size) for name in bulk for size in floors.PIECE_SIZES]
    small = [(name, floors.REQUEST_SIZE) for name in ("answer", "answer, by uvloop")]
    assert sorted(found.taken) == sorted(rows + small)
    assert {len(taken) for taken in found.taken.values()} == {2}
    assert min(map(min, found.taken.values())) > 0
