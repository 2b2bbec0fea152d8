"""Powers bare metal on and off through its Redfish controllers."""
