"""``cloudgraft deploy``: prepares an installation in Kubernetes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import click

from cloudgraft.cli.groups import Commands
from cloudgraft.cli.terminal import config_option, examples

_RELEASE: Final = re.compile(r"1\.(2[5-9]|3[0-7])(\.[0-9]+)?")  # of the chart's schema, also without a patch release
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")


def _release(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text is None:
        return None
    if not _RELEASE.fullmatch(text.removeprefix("v")):
        raise click.BadParameter("it must be a release from 1.25 to 1.37, such as 1.35 or 1.35.0")
    found = text.removeprefix("v")
    return found if found.count(".") > 1 else f"{found}.0"


def _name(_context: click.Context, _option: click.Parameter, text: str) -> str:
    if not _NAME.fullmatch(text):
        raise click.BadParameter("it must be lower-case letters, digits and hyphens, at most 42")
    return text


@click.group(cls=Commands)
def command() -> None:
    """Prepare an installation in Kubernetes."""


@command.command(
    "render",
    epilog=examples(
        "deploy render --config cloudgraft.yaml --to values.yaml",
        "deploy render --image registry.example/cloudgraft:0.2.0 --autoscaler-release 1.35 --to values.yaml",
        "deploy render --manifests --to manifests.yaml",
    ),
)
@config_option("The configuration of `cloudgraft serve`.")
@click.option(
    "--to",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write there. Default: standard output.",
)
@click.option("--force", is_flag=True, help="With --to: replace the file if it is there.")
@click.option("--name", default="cloudgraft", show_default=True, callback=_name, help="Of the release and its objects.")
@click.option(
    "--namespace", default="kube-system", show_default=True, callback=_name, help="Where it will be installed."
)
@click.option("--image", default="", metavar="REPOSITORY[:TAG]", help="Where your image of cloudgraft is.")
@click.option(
    "--certificates",
    type=click.Choice(["certManager", "job", "existing"]),
    default="certManager",
    show_default=True,
    help="Who makes the certificates.",
)
@click.option("--autoscaler-release", callback=_release, help="Of the autoscaler, such as 1.35: that of your cluster.")
@click.option("--manifests", is_flag=True, help="Write manifests instead of values; needs helm and the chart.")
@click.option(
    "--chart",
    type=click.Path(path_type=Path),
    default=Path("deploy/helm/cloudgraft"),
    show_default=True,
    help="With --manifests: where the chart is.",
)
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="How values look."
)
def render(
    path: Path,
    *,
    to: Path | None,
    name: str,
    namespace: str,
    image: str,
    certificates: str,
    autoscaler_release: str | None,
    chart: Path,
    output: str,
    force: bool,
    manifests: bool,
) -> None:
    """Write values for the Helm chart that fit a configuration.

    The files that it names need not be on this host. They get mounts, and the configuration in the values names them
    there. Standard error has the kubectl commands that create their Secrets, and what is different in the cluster.
    """
    if manifests and output == "json":
        raise click.UsageError("-o json is for values, and --manifests writes manifests")
    if force and to is None:
        raise click.UsageError("--force goes with --to")
    from cloudgraft.cli import deploy_run
    from cloudgraft.deploy.draft import Choices

    choices = Choices(
        name=name,
        namespace=namespace,
        certificates=certificates,
        autoscaler_release=autoscaler_release or "",
        image=image,
    )
    target = deploy_run.Target(to=to, force=force, is_json=output == "json", chart=chart if manifests else None)
    deploy_run.run(path, choices, target)
