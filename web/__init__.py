"""The web pages: application assembly, page routes, templates and static files."""
