"""Chance that can be repeated."""

import os
import secrets


def announced_seed() -> int:
    """A fresh seed, or KWIRE_TEST_SEED; printed, so that a failing run tells how to repeat it."""
    given = os.environ.get("KWIRE_TEST_SEED")
    seed = int(given) if given else secrets.randbits(32)
    print(f"repeat with KWIRE_TEST_SEED={seed}")
    return seed
