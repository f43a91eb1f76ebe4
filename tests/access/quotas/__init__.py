"""Tests of client quotas, without sockets."""
