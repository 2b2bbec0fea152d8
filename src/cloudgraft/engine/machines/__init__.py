"""One machine's life: its states, what was observed of it, and what to do about it. Pure."""
