"""What the kit's hooks do to a simulated cloud: ``python kit_chaos.py URL CHAOS`` or ``... URL vanish INSTANCE``."""

from __future__ import annotations

import json
import sys
import urllib.request


def _call(url: str, method: str, body: object) -> None:
    request = urllib.request.Request(url, data=json.dumps(body).encode(), method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()


if __name__ == "__main__":
    cloud, what, *instance = sys.argv[1:]
    if instance:
        _call(f"{cloud}/machines/{instance[0].rpartition('/')[2]}:{what}", "POST", {})
    else:
        _call(f"{cloud}/chaos", "PUT", json.loads(what))
