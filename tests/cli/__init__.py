"""The program a person types."""
