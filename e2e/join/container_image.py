"""A container image of one static program, as an archive that containerd imports. Same input, same bytes."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["archive"]

_OCI: Final = "application/vnd.oci.image"


def archive(program: bytes, names: Sequence[str]) -> bytes:
    """An OCI archive with one image of this program, by several names."""
    layer = _tar({"waits": program}, mode=0o755)
    blobs: dict[str, bytes] = {}
    config = _blob(
        blobs,
        f"{_OCI}.config.v1+json",
        _json(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {"Entrypoint": ["/waits"], "User": "65532"},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
            }
        ),
    )
    layers = [_blob(blobs, f"{_OCI}.layer.v1.tar", layer)]
    document = {"schemaVersion": 2, "mediaType": f"{_OCI}.manifest.v1+json", "config": config, "layers": layers}
    manifest = _blob(blobs, f"{_OCI}.manifest.v1+json", _json(document))
    manifests = [{**manifest, "annotations": {"io.containerd.image.name": name}} for name in names]
    files = {f"blobs/sha256/{digest}": content for digest, content in blobs.items()}
    files["oci-layout"] = _json({"imageLayoutVersion": "1.0.0"})
    files["index.json"] = _json({"schemaVersion": 2, "manifests": manifests})
    return _tar(files, mode=0o644)


def _blob(blobs: dict[str, bytes], media_type: str, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    blobs[digest] = content
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _tar(files: Mapping[str, bytes], *, mode: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
