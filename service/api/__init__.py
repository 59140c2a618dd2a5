"""The REST API: routes, problems, security, server-sent events."""
