"""Creates machines through Apache Libcloud; ``providers`` lists the clouds and their limits."""
