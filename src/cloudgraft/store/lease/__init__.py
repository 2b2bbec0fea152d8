"""Leader election in the database, and who writes to a file."""
