"""Argument types for argparse that several jobs share."""

import argparse
import math

COUNT_MAX = 1_000_000_000
SECONDS_MAX = 86_400.0


def count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= COUNT_MAX:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {COUNT_MAX:,}, got {text!r}")
    return int(text)


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"must be a number of seconds from 0 to {SECONDS_MAX:,.0f}, got {text!r}")
    return number
