"""The names of things in the HTTP APIs, and errors that point from the name in one API to the name in another."""
