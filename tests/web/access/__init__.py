"""Who may do what on the HTTP port."""
