"""What machines run in the place of the installers of k3s and RKE2: it notes how it was called, and leaves an agent.

As the real ones do, the installer makes a unit for systemd and does not start it. The agent that the unit starts notes
how it was called and which configuration it found, and has its certificate at once, as from a server that takes it.
"""

from __future__ import annotations

from typing import Final

__all__ = ["CALLS", "CONFIG_SEEN", "NO_RELEASE", "RECORD", "failing", "working"]

RECORD: Final = "/opt/record"
CALLS: Final = f"{RECORD}/calls"
CONFIG_SEEN: Final = f"{RECORD}/config.yaml"
NO_RELEASE: Final = "the installer finds no release"

_NOTES: Final = f"""#!/bin/sh
mkdir -p {RECORD}
echo "installer: $# arguments, $(env | grep -E '^(INSTALL|K3S|RKE2)_' | sort | xargs)" >>{CALLS}
"""
_FAILS: Final = f"""
echo "{NO_RELEASE}"
exit 1
"""
_WORKS: Final = f"""
cat >/usr/local/bin/AGENT <<'END'
#!/bin/sh
echo "agent: AGENT $*" >>{CALLS}
cp -p /etc/rancher/AGENT/config.yaml {CONFIG_SEEN}
mkdir -p /var/lib/rancher/AGENT/agent
echo "a certificate" >/var/lib/rancher/AGENT/agent/kubelet.kubeconfig
exec sleep infinity
END
chmod 755 /usr/local/bin/AGENT
cat >/etc/systemd/system/AGENT-agent.service <<'END'
[Service]
Type=exec
ExecStart=/usr/local/bin/AGENT agent

[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload
"""


def working(template: str) -> str:
    """One that leaves an agent."""
    return _NOTES + _WORKS.replace("AGENT", template)


def failing() -> str:
    """One that fails, and says why."""
    return _NOTES + _FAILS
