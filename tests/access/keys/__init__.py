"""API keys: their texts, their changes in time, and their rights."""
