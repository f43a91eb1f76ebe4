"""Tests of kwire/cli/log."""
