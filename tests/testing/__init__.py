"""Tests of kwire.testing and of the pytest plugin."""
