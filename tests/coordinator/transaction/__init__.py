"""Tests of the transaction coordinator."""
