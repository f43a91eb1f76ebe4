"""Tests of the Stream Engine."""
