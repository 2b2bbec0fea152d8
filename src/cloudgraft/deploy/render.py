"""Decides all values of the chart for a configuration, and what must be done before they work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cloudgraft.config import Config
from cloudgraft.deploy.cluster import write_cluster
from cloudgraft.deploy.draft import CHART, Choices, Draft, NewObject, Remark
from cloudgraft.deploy.egress import OPEN_PORTS, Endpoint, endpoints
from cloudgraft.deploy.files import NamedFile, named_files
from cloudgraft.deploy.host_needs import HostNeeds
from cloudgraft.deploy.inline_secrets import inline_secrets
from cloudgraft.deploy.mounts import decide_mounts
from cloudgraft.deploy.pod import pod_content, problems_in_the_pod
from cloudgraft.deploy.sections import is_of_the_chart, write_sections
from cloudgraft.deploy.text import commented, dumped
from cloudgraft.validation.problems import KeyPath, dotted

_ORDER: Final = ("name", "image", "server", "autoscaler", "dock", "certificates", "liqo", "pod")
_SERVER_ORDER: Final = (
    *("mode", "cluster", "postgresql", "config", "mounts", "env", "egressPorts", "rights"),
    *("settings", "store", "log", "allowedClients"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """The values of the chart for one configuration."""

    values: Mapping[str, Any]
    reasons: Mapping[KeyPath, str]
    remarks: tuple[Remark, ...]
    objects: tuple[NewObject, ...]  # that must be there before
    dockerfile: tuple[str, ...]  # of the image on top, if one is needed

    def text(self, file: str, choices: Choices) -> str:
        """The values file; ``file`` is the name of the configuration."""
        head = [
            f"Values of {CHART} for {file}, by `cloudgraft deploy render`.",
            f"For the namespace {choices.namespace}. The Secrets that they name come first; values.yaml has all keys.",
        ]
        return commented(self.values, self.reasons, head)


def render(config: Config, choices: Choices) -> Rendering:
    """Decides the values. Raises ConfigError with all that the chart cannot express."""
    draft = Draft(config, choices)
    files = named_files(config)
    needs = HostNeeds(draft)
    left = needs.write(files)
    _write_secrets(draft)
    write_cluster(draft)
    _write_mounts(draft, [one for one in left if not is_of_the_chart(one.path) and draft.at(one.path) is not None])
    write_sections(draft, files)
    _write_egress(draft)
    _write_choices(draft)
    values = dict(draft.values)
    content = pod_content(values, draft.own)
    if not list(draft.problems):
        draft.problems.add(*problems_in_the_pod(content, config.where().document.name))
    draft.problems.raise_any()
    draft.set(
        ("server", "config"), dumped(draft.own), "the sections that the chart does not write, with the paths in the pod"
    )
    if "config" in values.get("dock", {}):
        draft.set(("dock", "config"), dumped(values["dock"]["config"]))
    return Rendering(
        values=_ordered(draft.values),
        reasons=draft.reasons,
        remarks=tuple(draft.remarks),
        objects=tuple(draft.objects),
        dockerfile=tuple(needs.dockerfile()),
    )


def _write_secrets(draft: Draft) -> None:
    """Warns of secrets in the file itself: it becomes a ConfigMap, which many may read."""
    for path in inline_secrets(draft.own):
        draft.warn(path, "seems to be a secret, and would be in a ConfigMap and in the values: put it into a file")


def _write_mounts(draft: Draft, files: list[NamedFile]) -> None:
    mounts, paths = decide_mounts(files, draft.config.where().base_dir)
    for path, text in paths.items():
        draft.rewrite(path, text)
    entries: list[dict[str, str]] = []
    for mount in mounts:
        name, kind = mount.object_name(draft.choices.name), "secret" if mount.is_secret else "configMap"
        draft.reasons["server", "mounts", len(entries)] = ", ".join(map(dotted, mount.used_by))
        entries.append({"as": mount.name, kind: name})
        create = "secret generic" if mount.is_secret else "configmap"
        draft.objects.append(NewObject(kind=create, name=name, files=mount.sources()))
        templates = [path for path in mount.used_by if path[-1] == "file"]
        if templates and not mount.is_secret:
            draft.note(templates[0], "goes into a ConfigMap: what is secret in it belongs into join.valuesFile")
    if entries:
        draft.set(("server", "mounts"), entries, "each is a directory /etc/cloudgraft/<as>")


def _write_egress(draft: Draft) -> None:
    by_port: dict[int, list[Endpoint]] = {}
    for one in endpoints(draft.config):
        if one.is_this_host:
            draft.warn(one.path, f"{one.host} is the pod itself: name a host that pods reach")
        by_port.setdefault(one.port, []).append(one)
    ports = sorted(by_port.keys() - OPEN_PORTS)
    for index, port in enumerate(ports):
        shown = ", ".join(dict.fromkeys(f"{one.host} of {dotted(one.path)}" for one in by_port[port]))
        draft.reasons["server", "egressPorts", index] = shown
    if ports:
        draft.set(("server", "egressPorts"), ports, "besides 443 and 6443, which the chart opens")


def _write_choices(draft: Draft) -> None:
    choices = draft.choices
    if choices.name != "cloudgraft":
        draft.set(("name",), choices.name, "of all objects")
    if choices.image:
        repository, tag = _image(choices.image)
        draft.set(("image", "repository"), repository, "of deploy/Dockerfile, or an image on top of it")
        if tag:
            draft.set(("image", "tag"), tag)
    else:
        draft.remarks.append(Remark("image: there is no published one; say with --image where yours is"))
    if choices.autoscaler_release:
        draft.set(("autoscaler", "release"), choices.autoscaler_release, "its minor release should be the cluster's")
    else:
        draft.remarks.append(
            Remark("autoscaler.release is the chart's default; say with --autoscaler-release that of your cluster")
        )
    reasons = {
        "certManager": "cert-manager makes and renews them; it must be in the cluster",
        "job": "`cloudgraft certs secrets` makes them in a Job, and renews them in a CronJob",
        "existing": "their Secrets must be there, each with tls.crt, tls.key and ca.crt",
    }
    draft.set(("certificates", "mode"), choices.certificates, reasons[choices.certificates])
    if choices.certificates == "existing":
        secret = f"{choices.name}-client-tls"
        text = (
            f"the Secret {secret}, for the autoscaler, must be there too: serve-the-autoscaler.md says how it is made"
        )
        draft.remarks.append(Remark(f"certificates: {text}"))


def _image(text: str) -> tuple[str, str]:
    """The repository and the tag; a colon before a slash is that of a port."""
    repository, colon, tag = text.rpartition(":")
    return (repository, tag) if colon and "/" not in tag else (text, "")


def _ordered(values: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: values[key] for key in _ORDER if key in values}
    server = found["server"]
    return {**found, "server": {key: server[key] for key in _SERVER_ORDER if key in server}}
