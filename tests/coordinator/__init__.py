"""Tests of the coordinators in virtual time: text scenarios, random histories and edge cases of the runtime."""
