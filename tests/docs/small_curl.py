"""As much of curl as the pages use, for machines without it.

``curl -s [-X METHOD] [-H HEADER] [-d DATA] [-w FORMAT] URL``
"""

from __future__ import annotations

import argparse
import sys
import urllib.error
import urllib.request
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-X", dest="method")
    parser.add_argument("-H", dest="header", default="")
    parser.add_argument("-d", dest="data")
    parser.add_argument("-w", dest="tell", default="")
    parser.add_argument("url")
    given = parser.parse_args()
    data = given.data.encode() if given.data is not None else None
    if data is not None and data.startswith(b"@"):
        data = Path(given.data[1:]).read_bytes()
    request = urllib.request.Request(f"http://{given.url}", data, method=given.method)
    if given.header:
        request.add_header(*given.header.split(": ", 1))
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            status, body = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read()
    except OSError:
        sys.exit(7)
    sys.stdout.buffer.write(body + given.tell.replace("%{http_code}", str(status)).replace("\\n", "\n").encode())


if __name__ == "__main__":
    main()
