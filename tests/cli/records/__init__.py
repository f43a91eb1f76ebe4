"""Tests of formats and files of records."""
