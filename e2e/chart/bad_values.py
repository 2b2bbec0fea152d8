"""Values that the chart must refuse, each with what its message has to say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from e2e.helm import Helm, HelmError

__all__ = ["BAD_VALUES", "problems"]

_REPLICAS: Final = {"mode": "replicas", "postgresql": {"address": "db.example/cloudgraft"}}
_MANAGED: Final = {"nodeManager": {"enabled": True}, "discovery": {"enabled": True}}
BAD_VALUES: Final[tuple[tuple[Mapping[str, Any], str], ...]] = (
    ({"sever": {"mode": "single"}}, "'sever' not allowed"),
    ({"server": {"replcas": 3}}, "at '/server': additional properties 'replcas' not allowed"),
    ({"server": {"mode": "triple"}}, "at '/server/mode': value must be one of 'single', 'replicas', 'sidecar', 'none'"),
    ({"server": {"mode": "replicas"}}, "server.mode replicas needs server.postgresql.address"),
    ({"server": {**_REPLICAS, "replicas": 1}}, "at '/server/replicas': minimum: got 1, want 2"),
    ({"server": {**_REPLICAS, "replicas": 3, "maxUnavailable": 1}}, "server.maxUnavailable must be 0, or at least"),
    ({"server": {**_REPLICAS, "postgresql": {"address": "db.example"}}}, "at '/server/postgresql/address'"),
    ({"server": {"config": "clouds: ["}}, "server.config is no YAML mapping"),
    ({"server": {"config": "none"}}, "server.config is no YAML mapping"),
    ({"server": {"config": "store: {path: x}"}}, "server.config must not have `store`"),
    ({"server": {"config": {"server": {"listen": "x"}}}}, "server.config must not have `server`"),
    ({"server": {"settings": {"tls": {}}}}, "server.settings must not have `tls`"),
    ({"server": {"store": {"path": "x"}}}, "server.store must not have `path`"),
    ({"server": {"log": {"level": 9}}}, "at '/server/log/level': maximum: got 9, want 5"),
    ({"server": {"allowedClients": []}}, "at '/server/allowedClients'"),
    ({"server": {"mounts": [{"as": "tls", "secret": "x"}]}}, "/etc/cloudgraft/tls is the chart's own directory"),
    ({"server": {"mounts": [{"as": "lab", "secret": "x", "configMap": "y"}]}}, "at '/server/mounts/0'"),
    ({"server": {"mounts": [{"as": "../lab", "secret": "x"}]}}, "at '/server/mounts/0/as'"),
    ({"server": {"egressPorts": [0]}}, "at '/server/egressPorts/0': minimum: got 0, want 1"),
    ({"server": {"volume": {"size": "much"}}}, "at '/server/volume/size'"),
    ({"certificates": {"mode": "selfMade"}}, "at '/certificates/mode': value must be one of"),
    ({"certificates": {"server": {"duration": "90d"}}}, "at '/certificates/server/duration'"),
    (
        {"certificates": {"mode": "existing", "issuerRef": {"name": "own"}}},
        "certificates.issuerRef is for certificates.mode certManager only",
    ),
    ({"autoscaler": {"release": "1.24.0"}}, "at '/autoscaler/release'"),
    ({"autoscaler": {"release": 1.35}}, "at '/autoscaler/release': got number, want string"),
    ({"autoscaler": {"flags": {"cloud-config": "x"}}}, "autoscaler.flags must not have cloud-config"),
    ({"autoscaler": {"flags": {"status-config-map-name": "x"}}}, "must not have status-config-map-name"),
    ({"autoscaler": {"image": {"tag": "latest"}}}, "must name a release"),
    ({"image": {"tag": "latest"}}, "must name a release"),
    ({"image": {"pullPolicy": "Sometimes"}}, "at '/image/pullPolicy'"),
    ({"pod": {"user": 0}}, "at '/pod/user': minimum: got 0, want 1"),
    ({"pod": {"terminationGracePeriodSeconds": 5}}, "at '/pod/terminationGracePeriodSeconds'"),
    ({"dock": {"hosts": [""]}}, "at '/dock/hosts/0'"),
    ({"dock": {"mode": "server", "config": "listen: x"}}, "dock.config must not have `listen`"),
    ({"nodeManager": {"enabled": True, "config": "nodeManager: {}"}}, "nodeManager.config must not have"),
    ({"agent": {"server": "http://discovery.example"}}, "at '/agent/server'"),
    ({"liqo": {"consumer": ["nodeManager"]}}, "which is not enabled: set nodeManager.enabled"),
    ({"liqo": {"provider": "Turin"}}, "at '/liqo/provider'"),
    ({"name": "edge", "nodeManager": {"enabled": True}}, "nodeManager.clients has the certificate cloudgraft-front"),
    (
        {"name": "edge", "server": {"mode": "none"}, "autoscaler": {"mode": "none"}, **_MANAGED},
        "discovery.clients has the certificate cloudgraft-node-manager, and that of this release is edge-node-manager",
    ),
    ({"networkPolicy": {"dnsPorts": []}}, "at '/networkPolicy/dnsPorts'"),
    ({"name": "Cloud Graft"}, "at '/name'"),
    ({"monitoring": {"serviceMonitor": {"interval": "often"}}}, "at '/monitoring/serviceMonitor/interval'"),
)


def problems(helm: Helm) -> Iterator[str]:
    """One line for each that is not refused, or refused with a message that does not say why."""
    for values, message in BAD_VALUES:
        try:
            helm.template_of(values)
        except HelmError as error:
            if message not in str(error):
                yield f"{values}: the message lacks {message!r}: {error}"
        else:
            yield f"{values}: is not refused"
