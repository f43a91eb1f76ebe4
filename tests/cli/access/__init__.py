"""Tests of kwire/cli/access."""
