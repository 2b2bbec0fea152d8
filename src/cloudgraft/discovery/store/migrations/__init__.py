"""How older discovery databases become the present one. Written by hand, and never changed once released."""
