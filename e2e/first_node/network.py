"""The pods' network: a bridge in a network namespace of ours, and a namespace with an address for each pod.

No packet can leave it, and the ports that the pods listen on are free whatever else runs on this machine. Services have
no addresses here: their names lead to the pods that are ready, as those of headless ones do.
"""

from __future__ import annotations

import subprocess
from typing import Final

__all__ = ["HOST", "Address", "Network", "set_up"]

HOST: Final = "10.244.0.1"  # of the bridge: the node's, and the API server's
_BRIDGE: Final = "pods"
_MOST: Final = 200  # pods in one run


def set_up() -> None:
    """Makes the bridge. Call it in a new network namespace, and a new mount namespace."""
    for words in (
        "link set lo up",
        f"link add {_BRIDGE} type bridge",
        f"addr add {HOST}/24 dev {_BRIDGE}",
        f"link set {_BRIDGE} up",
        f"route add default dev {_BRIDGE}",  # the API server announces the address that has this route
    ):
        _ip(words)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)  # for `ip netns`, seen by nobody else


class Address:
    """A pod's own network namespace, with its address."""

    def __init__(self, number: int) -> None:
        self._name = f"pod{number}"
        self.ip = f"10.244.0.{number + 1}"
        self.namespace = f"/run/netns/{self._name}"

    def open(self) -> None:
        """Makes it."""
        inside = f"-n {self._name}"
        for words in (
            f"netns add {self._name}",
            f"link add {self._name} type veth peer name eth0 netns {self._name}",
            f"link set {self._name} master {_BRIDGE} up",
            f"{inside} addr add {self.ip}/24 dev eth0",
            f"{inside} link set eth0 up",
            f"{inside} link set lo up",
            f"{inside} route add default via {HOST}",
        ):
            _ip(words)

    def close(self) -> None:
        """Takes it away, and with it what connects it."""
        _ip(f"link delete {self._name}")
        _ip(f"netns delete {self._name}")


class Network:
    """Gives out addresses, each only once: nobody takes a new pod for an old one."""

    def __init__(self) -> None:
        self._given = 0

    def new(self) -> Address:
        """The address of one more pod."""
        self._given += 1
        if self._given > _MOST:
            raise RuntimeError(f"more than {_MOST} pods: something makes them again and again")
        address = Address(self._given)
        address.open()
        return address


def _ip(words: str) -> None:
    done = subprocess.run(["ip", *words.split()], capture_output=True, text=True, timeout=30.0, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {words}: {done.stderr.strip()}")
