"""Tests of what the console is served from: its files, the overview and the list of topics."""
