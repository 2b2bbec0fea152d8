"""Has cert-manager make what the chart asks for, and renew it under load."""
