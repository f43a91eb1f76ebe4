"""Tests of the master of the Stream Engine."""
