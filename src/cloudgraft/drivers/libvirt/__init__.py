"""Creates virtual machines on one host with libvirt and QEMU or KVM."""
