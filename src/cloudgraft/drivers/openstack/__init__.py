"""Creates servers in OpenStack Nova through openstacksdk."""
