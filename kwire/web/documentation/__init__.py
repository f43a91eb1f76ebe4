"""The OpenAPI document, and the documentation page and scripts that the server delivers."""
