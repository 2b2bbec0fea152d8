"""Creates virtual machines in a Proxmox VE cluster."""
