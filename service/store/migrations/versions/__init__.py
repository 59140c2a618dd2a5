"""One file a migration, oldest first by number."""
