"""Tests of the protocol without I/O."""
