"""Tests of browsing records: filters, scans, and the routes."""
