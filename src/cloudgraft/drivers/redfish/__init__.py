"""Bare metal, switched on and off through its own controllers, which speak Redfish."""
