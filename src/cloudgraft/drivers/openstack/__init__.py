"""OpenStack: servers of Nova, by openstacksdk."""
