"""Remote logs and their parts."""
