"""Tests of kwire/cli/wire."""
