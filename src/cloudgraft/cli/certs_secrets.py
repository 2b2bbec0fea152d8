"""`cloudgraft certs secrets`: makes and renews certificates in Secrets of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudgraft.cli.terminal import config_option, examples, output_option, print_json

if TYPE_CHECKING:
    from cloudgraft.certs.cluster_secrets import Change, SecretsPlan


@click.command("secrets", epilog=examples("certs secrets --config certificates.yaml --kubeconfig ~/.kube/config"))
@config_option("The file that says which Secrets there are.", default=Path("certificates.yaml"))
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Of the cluster; without it, the cluster of this pod.",
)
@output_option
def command(path: Path, kubeconfig: Path | None, output: str) -> None:
    """Make certificates in Secrets of a cluster, and renew those that are about to expire.

    The Secrets must be there, and may be empty. Each gets tls.crt, tls.key and ca.crt in one step. The authority is in
    a Secret of its own and keeps its key when it is renewed. Run it again and again: what is good is left alone.

    \b
    The file:
      namespace: kube-system
      authority: {secret: cloudgraft-ca, duration: 87600h, renewBefore: 17520h}
      certificates:
        - secret: cloudgraft-server-tls
          name: cloudgraft
          hosts: [cloudgraft.kube-system.svc, localhost]
          usages: [server auth]
          duration: 2160h
          renewBefore: 720h
        - secret: cloudgraft-client-tls
          name: cluster-autoscaler-grpc-client
          hosts: [cluster-autoscaler-grpc-client]
          usages: [client auth]
    """
    import asyncio

    from cloudgraft.certs.cluster_secrets import SecretsPlan
    from cloudgraft.config import Where, parse_options
    from cloudgraft.validation.document import read_mapping

    document, data = read_mapping(path, "namespace: kube-system")
    plan = parse_options(SecretsPlan, data, Where(document=document, base_dir=path.absolute().parent, path=()))
    changes = asyncio.run(_keep(plan, kubeconfig))
    if output == "json":
        print_json([_as_json(change) for change in changes])
        return
    for change in changes:
        click.echo(f"{change.outcome.value} {change.secret}; valid until {change.not_after:%Y-%m-%d}")


async def _keep(plan: SecretsPlan, kubeconfig: Path | None) -> list[Change]:
    from datetime import UTC, datetime

    from cloudgraft.certs.cluster_secrets import renew_certificates
    from cloudgraft.kube.connect import connect

    client = connect(kubeconfig)
    try:
        return await renew_certificates(client, plan, datetime.now(UTC))
    finally:
        await client.close()


def _as_json(change: Change) -> dict[str, str]:
    end = change.not_after.isoformat().replace("+00:00", "Z")
    return {"secret": change.secret, "outcome": change.outcome.value, "notAfter": end}
