"""Tests of the Python client and of the JavaScript module."""
