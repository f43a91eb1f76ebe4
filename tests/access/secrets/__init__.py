"""Tests of the keys of a node, and of what they encrypt."""
