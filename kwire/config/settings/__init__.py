"""The tables of broker settings, one for each area."""
