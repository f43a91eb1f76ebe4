"""Rooms as things: names, settings, coming and going."""
