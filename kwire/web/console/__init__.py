"""The web console: the files of the page at /console, and GET /overview, which it draws its charts from."""
