"""Which open files are closed for others."""

import resource
import subprocess
import sys
from collections.abc import Callable

import pytest

from oncelog.runtime.open_files import CLOSERS_COUNT_MAX, OpenFiles, log_files_count_max

RAISE = """
import resource
from oncelog.runtime.open_files import log_files_count_max, raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (150, 300))
print(raise_limit(), log_files_count_max(), resource.getrlimit(resource.RLIMIT_NOFILE))
"""


class File:
    """A holder that notes what is asked of it."""

    def __init__(self, files: OpenFiles, *, unsynced: bool = False, fails: bool = False) -> None:
        self.files = files
        self.recently_used = False
        self.unsynced = unsynced
        self.fails = fails
        self.is_open = False
        self.syncs_count = 0
        self.open()

    def open(self) -> None:
        self.is_open = True
        self.files.opened(self)

    def let_go(self, *, sync: bool = False) -> bool:
        if sync:
            self.syncs_count += 1
            self.unsynced = self.fails
        self.is_open = self.unsynced
        return not self.unsynced


def open_ones(files: list[File]) -> list[int]:
    return [number for number, file in enumerate(files) if file.is_open]


def test_the_file_opened_first_is_closed_first() -> None:
    open_files = OpenFiles(2)
    files = [File(open_files) for _ in range(4)]
    assert open_ones(files) == [2, 3]
    files[0].open()
    assert open_ones(files) == [0, 3]
    assert len(open_files) == 2


def test_a_file_in_use_is_passed_over_once() -> None:
    open_files = OpenFiles(2)
    files = [File(open_files), File(open_files)]
    files[0].recently_used = True
    files.append(File(open_files))
    assert open_ones(files) == [0, 2]
    files[0].recently_used = True
    files.append(File(open_files))
    assert open_ones(files) == [0, 3]


def test_the_bound_holds_though_every_file_is_in_use() -> None:
    open_files = OpenFiles(3)
    files = []
    for _ in range(10):
        files.append(File(open_files))
        for file in files:
            file.recently_used = True
        assert len(open_ones(files)) <= 3


def test_a_file_with_unsynced_bytes_is_closed_only_when_no_other_can_be_and_synced_first() -> None:
    open_files = OpenFiles(2)
    files = [File(open_files, unsynced=True), File(open_files), File(open_files, unsynced=True)]
    assert open_ones(files) == [0, 2]
    assert [file.syncs_count for file in files] == [0, 0, 0]
    files.append(File(open_files))
    assert open_ones(files) == [0, 3]
    assert [file.syncs_count for file in files] == [0, 0, 1, 0]


def test_a_file_whose_sync_fails_stays_open() -> None:
    open_files = OpenFiles(1)
    files = [File(open_files, unsynced=True, fails=True), File(open_files)]
    assert open_ones(files) == [0, 1]


def test_a_file_that_closed_by_itself_counts_no_more() -> None:
    open_files = OpenFiles(2)
    files = [File(open_files), File(open_files)]
    files[0].is_open = False
    open_files.closed(files[0])
    files.append(File(open_files))
    assert open_ones(files) == [1, 2]


def test_in_the_background_files_are_closed_until_there_is_room_for_some() -> None:
    work: list[Callable[[], None]] = []
    open_files = OpenFiles(16, work.append)
    files = [File(open_files, unsynced=number % 2 == 0) for number in range(17)]
    assert open_ones(files) == list(range(17))
    assert len(work) == 1
    work.pop()()
    assert open_ones(files) == [0, 2, *range(4, 17)]
    assert [file.syncs_count for file in files] == [0] * 17
    for file in files:
        file.unsynced = file.is_open
    files += [File(open_files, unsynced=True) for _ in range(2)]
    assert len(work) == 1
    work.pop()()
    # Those that were looked at before stand behind.
    assert open_ones(files) == [0, 2, *range(6, 19)]
    assert [number for number, file in enumerate(files) if file.syncs_count] == [4, 5]


def test_that_there_are_too_many_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    open_files = OpenFiles(2, lambda work: work())
    assert [len(caplog.records) for _ in range(4) if File(open_files)] == [0, 0, 1, 1]
    assert "twice as many as it has partitions" in caplog.text


def test_whoever_opens_a_file_waits_only_where_the_background_falls_behind() -> None:
    work: list[Callable[[], None]] = []
    open_files = OpenFiles(16, work.append)
    files = [File(open_files, unsynced=True) for _ in range(20)]
    assert len(work) == CLOSERS_COUNT_MAX
    assert len(open_ones(files)) == 20
    files.append(File(open_files, unsynced=True))
    assert open_ones(files) == list(range(1, 21))
    while work:
        work.pop()()
    assert len(open_ones(files)) == len(open_files) == 15
    files += [File(open_files) for _ in range(2)]
    assert len(work) == 1


def test_the_background_gives_up_where_nothing_can_be_closed() -> None:
    work: list[Callable[[], None]] = []
    open_files = OpenFiles(4, work.append)
    files = [File(open_files, unsynced=True, fails=True) for _ in range(5)]
    work.pop()()
    assert len(open_ones(files)) == len(open_files) == 5


def test_a_file_that_is_opened_again_while_it_is_synced_counts() -> None:
    work: list[Callable[[], None]] = []
    open_files = OpenFiles(2, work.append)

    class OpenedAgain(File):
        def let_go(self, *, sync: bool = False) -> bool:
            is_closed = super().let_go(sync=sync)
            if sync:
                self.open()
            return is_closed

    again = OpenedAgain(open_files, unsynced=True)
    File(open_files, unsynced=True)
    File(open_files, unsynced=True)
    work.pop()()
    assert again.is_open
    assert again in open_files._holders


def test_half_of_the_files_are_closed_for_something_else() -> None:
    open_files = OpenFiles(10)
    files = [File(open_files) for _ in range(5)]
    files[1].unsynced = True
    assert open_files.close_some()
    assert open_ones(files) == [1, 3, 4]
    for file in files:
        file.unsynced = True
    assert not open_files.close_some()


def test_the_limit_is_raised_as_far_as_the_system_allows() -> None:
    ran = subprocess.run([sys.executable, "-c", RAISE], capture_output=True, text=True, check=True)
    assert ran.stdout == "300 150 (300, 300)\n"


def test_half_of_the_descriptors_are_for_log_files() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert log_files_count_max() <= max(64, soft // 2) or soft == resource.RLIM_INFINITY
