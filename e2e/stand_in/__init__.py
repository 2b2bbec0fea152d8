"""Machines that are not there: what a machine with kubeadm and a kubelet would do with its user data, and no more.

The credentials are real: the bootstrap token is used as kubeadm uses it, the certificate is asked for, approved and
signed as a kubelet's is, and the node is registered with it, without a providerID.
"""
