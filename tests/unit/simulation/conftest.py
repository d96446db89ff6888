import gc
import sys
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _throw_away_the_dead() -> Iterator[None]:
    """Processes that died leave coroutines behind; they go here, in silence.

    What was there before the test is frozen, so that the collection looks at the test's alone.
    """
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    gc.freeze()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield
        gc.collect()
    gc.unfreeze()
    sys.unraisablehook = hook
