"""The use of the limits of API keys: published events, publish rate, and subscription slots."""
