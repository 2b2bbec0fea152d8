"""Puts files where a rendered pod has them, so that its configuration can be loaded with every file in its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cloudgraft.certs.authority import create_bundle
from cloudgraft.config import ConfigError, load
from cloudgraft.deploy.files import named_files
from cloudgraft.deploy.render import Rendering

__all__ = ["mounted_directories", "problems"]

_PLACES: Final = re.compile(r"(?<![\w/.])/(?:etc/cloudgraft|var/lib/cloudgraft|opt)(?=[/\s])")
_CERTIFICATE: Final = ("tls.crt", "tls.key", "ca.crt")
_VOLUMES: Final = frozenset({"/var/lib/cloudgraft", "/tmp"})


def mounted_directories(objects: Sequence[Mapping[str, Any]], name: str) -> dict[str, str]:
    """The Secret or ConfigMap of each directory of the Deployment's pod, by where it is mounted."""
    (deployment,) = (one for one in objects if one["kind"] == "Deployment" and one["metadata"]["name"] == name)
    pod = deployment["spec"]["template"]["spec"]
    sources = {
        volume["name"]: volume.get("secret", {}).get("secretName") or volume.get("configMap", {}).get("name") or ""
        for volume in pod["volumes"]
    }
    (container,) = pod["containers"]
    return {mount["mountPath"]: sources[mount["name"]] for mount in container["volumeMounts"]}


def problems(text: str, rendering: Rendering, mounts: Mapping[str, str], directory: Path) -> Iterator[str]:
    """What is wrong with the configuration of a pod that has these mounts, and what the commands put into them.

    It is loaded as the server loads it, which needs every file; ``directory`` stands for the root of the pod.
    """
    _fill(rendering, mounts, directory)
    path = directory / "etc/cloudgraft/config/cloudgraft.yaml"
    path.write_text(_PLACES.sub(lambda found: f"{directory}{found[0]}", text), "utf-8")
    try:
        config = load(path)
    except ConfigError as error:
        yield f"the pod cannot load its configuration: {error}"
        return
    for file in named_files(config):
        here = Path(file.text)
        made_by_server = any(here.is_relative_to(f"{directory}{place}") for place in _VOLUMES)
        if not made_by_server and not here.is_relative_to(directory / "opt") and not here.exists():
            yield f"{file.text} is not mounted"


def _fill(rendering: Rendering, mounts: Mapping[str, str], directory: Path) -> None:
    bundle = create_bundle(directory / "certs", hosts=["localhost"])
    pem = {
        "tls.crt": bundle.server_cert.read_text("utf-8"),
        "tls.key": bundle.server_key.read_text("utf-8"),
        "ca.crt": bundle.ca_cert.read_text("utf-8"),
    }
    made = {one.name: one for one in rendering.objects}
    for place, source in mounts.items():
        at = directory / place.lstrip("/")
        at.mkdir(parents=True, exist_ok=True)
        if source.endswith("-tls"):
            for name in _CERTIFICATE:
                (at / name).write_text(pem[name], "utf-8")
        elif source in made:
            for key, file in made[source].files:
                # What the user has there is not known: an authority, or a token, which is YAML too.
                is_authority = "ca" in re.split(r"\W", file.name) or key == "ca.crt"
                (at / (key or "any")).write_text(pem["ca.crt"] if is_authority else f"token: {'A' * 43}\n", "utf-8")
    for word in re.findall(r"/opt/[\w-]+", rendering.values["server"]["config"]):
        (directory / word.lstrip("/")).mkdir(parents=True, exist_ok=True)
