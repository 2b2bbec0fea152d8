"""`cloudgraft call`: makes one of the 15 calls, to any server in any language."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from cloudgraft.cli.terminal import duration, examples
from cloudgraft.cli.waiting import WaitingCommand, wait_option


def _calls(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from cloudgraft.cli.call_messages import CATALOGUE

    return [name for name in CATALOGUE if name.lower().startswith(incomplete.lower())]


@click.command(
    "call",
    cls=WaitingCommand,
    epilog=examples(
        "call --list",
        "call NodeGroups",
        "call NodeGroups --address 127.0.0.1:8086",
        """call NodeGroupNodes --cloud-config cloud-config.yaml --data '{"id": "small"}'""",
        """call NodeGroupTemplateNodeInfo --address 127.0.0.1:8086 --data '{"id": "small"}' -o json""",
        "call Refresh --address provider:8086 --cert tls.crt --key tls.key --cacert ca.crt",
    ),
)
@click.argument("rpc", required=False, shell_complete=_calls)
@click.option(
    "--address", default="", metavar="HOST:PORT", help="The server, as in a cloud-config: host:port or unix:/path."
)
@click.option("--cloud-config", default="", metavar="FILE", help="The autoscaler's own cloud-config file.")
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The server's configuration file, which says where it listens. Default: ./cloudgraft.yaml.",
)
@click.option("--url", default="", help="The server as https://host:port (TLS) or http://host:port.")
@click.option("--key", default="", metavar="FILE", help="The client's private key, for mTLS.")
@click.option("--cert", default="", metavar="FILE", help="The client's certificate, for mTLS.")
@click.option("--cacert", default="", metavar="FILE", help="The authority that signed the server's certificate.")
@click.option(
    "--timeout", default="", callback=duration, metavar="DURATION", help="The time limit, such as 500ms or 1m; else 5s."
)
@wait_option("make the call once")
@click.option("--data", default="{}", metavar="JSON", help="The request in protobuf JSON; @FILE, or - for stdin.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("-v", "--verbosity", type=click.IntRange(0, 10), default=0, help="1: log errors, 5: log every call.")
@click.option("--list", "list_only", is_flag=True, help="Show all calls with an example of each, and stop.")
def command(
    rpc: str | None,
    *,
    address: str,
    cloud_config: str,
    config: Path | None,
    url: str,
    key: str,
    cert: str,
    cacert: str,
    timeout: timedelta | None,
    wait: timedelta | None,
    data: str,
    output: str,
    verbosity: int,
    list_only: bool,
) -> None:
    """Make one of the 15 calls of the autoscaler's protocol to any server.

    RPC is the name of the call, in upper or lower case. A node template is shown as YAML, lists as tables; -o json
    prints the answer in protobuf JSON.

    The request is sent as the autoscaler would send it: fields that old and new releases name differently are filled
    both, NodeGroupGetOptions gets the autoscaler's flag defaults unless you give others, and prices are for the next
    hour unless you say. PricingPodPrice takes `pod` as a Kubernetes manifest too.
    """
    from cloudgraft.cli.call_run import Where, make_call, print_calls

    if list_only or rpc is None:
        print_calls(output)
        return
    where = Where(address=address, cloud_config=cloud_config, config=config, url=url, key=key, cert=cert, cacert=cacert)
    make_call(rpc, data, where, timeout=timeout, wait=wait, verbosity=verbosity, output=output)
