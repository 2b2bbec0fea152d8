"""Has cert-manager issue the certificates that the chart asks for, and renews them under load."""
