"""What the catalogue holds: one file per origin, pure data."""
