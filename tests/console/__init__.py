"""Tests of the web console in a real browser, against a real server with data."""
