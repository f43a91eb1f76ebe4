"""What arguments of several jobs have to look like; each is a `type` for argparse, and says what is wrong."""

import argparse
import math

COUNT_MAX = 1_000_000_000
SECONDS_MAX = 86_400.0


def count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= COUNT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to {COUNT_MAX:,}")
    return int(text)


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0 to {SECONDS_MAX:,.0f}")
    return number
