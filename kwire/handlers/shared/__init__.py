"""Code shared by the handlers of several APIs."""
