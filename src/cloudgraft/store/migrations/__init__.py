"""How the journal's schema came to be, step by step."""
