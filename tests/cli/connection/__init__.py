"""Tests of kwire/cli/connection."""
