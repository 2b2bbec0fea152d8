"""The hooks of the conformance kit: ``PROXY hold|release GROUP``, ``PROXY hang|clear``."""

from __future__ import annotations

import json
import sys
import urllib.request

WHY = "Could not launch On-Demand Instances. InsufficientInstanceCapacity - There is none."


def main(url: str, what: str, *names: str) -> None:
    """Tells the proxy what is to go wrong, or no more."""
    group = "".join(names)
    path, order = {
        "hold": ("/_hold", {"group": group, "why": WHY}),
        "release": ("/_release", {"group": group}),
        "hang": ("/_faults", {"kind": "hang", "times": None}),
        "clear": ("/_faults", None),
    }[what]
    data = json.dumps(order).encode() if order else None
    request = urllib.request.Request(url + path, data, method="POST" if order else "DELETE")
    urllib.request.urlopen(request, timeout=10).close()


if __name__ == "__main__":
    main(*sys.argv[1:])
