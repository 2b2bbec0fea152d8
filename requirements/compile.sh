#!/bin/sh
# Writes the lock files anew from pyproject.toml: exact versions with hashes, and no word on where they come from.
# Needs uv on the PATH. Run it when a dependency changes, then commit what it wrote.
set -eu
cd "$(dirname "$0")/.."
lock() {
  out=$1
  shift
  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
    --no-annotate --custom-compile-command "requirements/compile.sh" --output-file "requirements/$out" "$@"
}
lock core.txt pyproject.toml --group build
lock image.txt pyproject.toml --group build --extra http --extra liqo --extra postgresql --extra tracing \
  --extra ec2 --extra hetzner --extra libcloud --extra openstack --extra proxmox --extra redfish --extra vsphere
lock dev.txt pyproject.toml --group dev
lock proto.txt --group proto
lock native.txt --group native
lock dist.txt --group dist
lock site.txt --group site
