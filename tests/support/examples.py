"""How many examples a property is tried with.

Hypothesis lets a profile change the count only where a test names none. Tests that name theirs ask
here, so that ``make quick`` (``--hypothesis-profile quick``, see tests/conftest.py) tries fewer,
and ``make test-full`` (``thorough``) three times as many.
"""

from hypothesis import settings

EXAMPLES_COUNT_DEFAULT = 100
EXAMPLES_COUNT_QUICK = 10
EXAMPLES_COUNT_THOROUGH = 300


def examples(count: int) -> int:
    """`count`, in the proportion that the chosen profile has to the default one; at least 1."""
    return max(count * settings().max_examples // EXAMPLES_COUNT_DEFAULT, 1)


def places(count: int) -> range:
    """All of 0 to `count` - 1 with the thorough profile, evenly some of them with the others."""
    return range(0, count, EXAMPLES_COUNT_THOROUGH // settings().max_examples)
