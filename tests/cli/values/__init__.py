"""Tests of the values that users give."""
