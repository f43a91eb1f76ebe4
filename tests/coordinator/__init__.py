"""Coordinators in virtual time: text scenarios, random histories, and the corners of the runtime."""
