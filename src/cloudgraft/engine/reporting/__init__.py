"""What people and programs can see: reports, explanations, metrics, webhook."""
