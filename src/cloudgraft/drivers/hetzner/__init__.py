"""Creates servers in Hetzner Cloud."""
