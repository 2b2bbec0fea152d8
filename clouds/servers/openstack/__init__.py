"""A real OpenStack control plane on this machine, of which only the hypervisor is a fake: Nova's own.

Keystone, Placement, Glance, Neutron and Nova come from PyPI into an environment of their own below the cache directory;
MariaDB and RabbitMQ are the machine's. All of it is on the loopback device, without root, and stops in the end.
"""
