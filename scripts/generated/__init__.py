"""Pages of docs/, or parts of them, that are written from code and data: one module each, for `scripts/generate`."""
