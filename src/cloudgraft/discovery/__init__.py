"""Remote clusters that share resources: who they are, what is free, what it costs, and who has reserved it."""
