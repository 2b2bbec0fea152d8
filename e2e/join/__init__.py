"""Real machines join: a Debian image boots in QEMU, and its own kubeadm and kubelet make it a node."""
