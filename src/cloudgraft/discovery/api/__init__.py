"""Discovery over HTTPS: the application, its routes and its JSON."""
