"""Creates machines in Amazon EC2 and in other clouds with its API."""
