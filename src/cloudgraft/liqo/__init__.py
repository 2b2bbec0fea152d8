"""Remote clusters as nodes, by Liqo."""
