"""Tests of rooms on a cluster."""
