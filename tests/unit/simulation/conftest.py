import gc
import sys
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _throw_away_the_dead() -> Iterator[None]:
    """Processes that died leave coroutines behind; they go here, in silence."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield
        gc.collect()
    sys.unraisablehook = hook
