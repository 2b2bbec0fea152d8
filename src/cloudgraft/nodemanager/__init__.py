"""The engine behind HTTPS, and the provider that talks to it."""
