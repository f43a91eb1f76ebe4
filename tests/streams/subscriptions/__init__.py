"""Subscriptions in virtual time: history, live delivery and slow subscribers."""
