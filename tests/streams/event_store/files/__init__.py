"""Tests of per-event files."""
