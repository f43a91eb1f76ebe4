"""Builds the wheel and the sdist, and tries them in environments that have nothing else. Run by scripts/package."""
