"""What a machine's image has beside packages and programs: as any image for kubeadm, and a report of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

__all__ = ["ARCHIVE", "FILES", "PAUSE", "WORKLOAD"]

PAUSE: Final = "registry.example/pause:1"
WORKLOAD: Final = "registry.example/waits:1"
ARCHIVE: Final = "opt/containers.tar"  # both images; containerd imports them before the machine joins

_BRIDGE: Final = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
        },
        {"type": "loopback"},
    ],
}

_CONTAINERD: Final = f"""version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
"""

_KUBELET: Final = """[Unit]
Description=kubelet
Wants=network-online.target
After=network-online.target containerd.service

[Service]
Environment="BOOTSTRAP=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf"
Environment="CONFIG=--kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStart=/usr/bin/kubelet $BOOTSTRAP $CONFIG $KUBELET_KUBEADM_ARGS
Restart=always
RestartSec=10
StartLimitInterval=0

[Install]
WantedBy=multi-user.target
"""

# The image lacks what resizes disks and makes keys of a host, which cloud-init would call an error.
_CLOUD_INIT: Final = """datasource_list: [NoCloud, None]
network: {config: disabled}
manage_etc_hosts: true
resize_rootfs: false
ssh_genkeytypes: []
"""

_NETWORK: Final = """[Match]
Name=en*

[Network]
DHCP=ipv4

[DHCPv4]
UseDNS=no
"""

# Once cloud-init is done: what it says of itself and of the user data, and the files that the user data is about. One
# archive has it all, with the owner and the mode of each file.
_REPORT: Final = """#!/bin/sh
for word in $(cat /proc/cmdline); do
  case $word in report=*) address=${word#report=}/$(hostname) ;; esac
done
mkdir -p /run/report
cloud-init status --wait --format json >/run/report/status.json
cloud-init schema --system >/run/report/schema 2>&1
systemctl show --property Id,ActiveState,UnitFileState k3s-agent.service rke2-agent.service >/run/report/units
cd /
find etc/rancher etc/kubernetes/cloudgraft-join.yaml opt/record run/report \\
  var/lib/cloudgraft var/log/cloudgraft-join.log -type f 2>/dev/null |
  tar --create --file /run/report.tar --files-from -
curl -sS --fail --retry 9 --retry-all-errors --upload-file /run/report.tar "$address"
"""

_REPORT_UNIT: Final = """[Unit]
Description=Says what has become of the user data
After=cloud-final.service
ConditionKernelCommandLine=report

[Service]
Type=oneshot
ExecStart=/bin/sh /usr/lib/report.sh
StandardOutput=journal+console
TimeoutStartSec=infinity

[Install]
WantedBy=cloud-init.target
"""

FILES: Final[Mapping[str, str]] = {
    "etc/cloud/cloud.cfg.d/90-image.cfg": _CLOUD_INIT,
    "etc/cni/net.d/10-pods.conflist": json.dumps(_BRIDGE, indent=2),
    "etc/containerd/config.toml": _CONTAINERD,
    "etc/fstab": "/dev/vda / ext4 defaults 0 1\n",
    "etc/hostname": "machine\n",
    "etc/resolv.conf": "",
    "etc/sysctl.d/90-kubernetes.conf": "net.ipv4.ip_forward = 1\n",
    "etc/systemd/network/10-dhcp.network": _NETWORK,
    "usr/lib/report.sh": _REPORT,
    "usr/lib/systemd/system/kubelet.service": _KUBELET,
    "usr/lib/systemd/system/report.service": _REPORT_UNIT,
}
