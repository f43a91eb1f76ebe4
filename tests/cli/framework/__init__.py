"""Tests of kwire/cli/framework."""
