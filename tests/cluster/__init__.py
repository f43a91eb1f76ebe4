"""Tests of the replicated stream engine."""
