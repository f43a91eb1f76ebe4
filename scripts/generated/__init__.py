"""`scripts/generate`: generates pages of docs/, or parts of pages, from code and data. Each page has one module."""
