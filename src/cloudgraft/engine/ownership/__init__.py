"""Which machines are ours, and who may take, release or delete them. Pure."""
