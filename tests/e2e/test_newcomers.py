"""What a newcomer copies from a page, in environments of its own. For `make test-full`."""

import pytest
from rich.console import Console

from tests.support import copied


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_tests_of_the_page_pass_with_each_python() -> None:
    assert copied.run_all(Console())
