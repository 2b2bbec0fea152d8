"""How machines become nodes of a cluster: what they are told when they boot, and what their nodes are given."""
