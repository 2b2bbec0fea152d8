"""Where the Kubernetes API is and who we are there: from a kubeconfig file, or from a pod's service account.

A service account's token rotates: its file is read again when the API does not take the old one any more. The same goes
for a kubeconfig that names a ``tokenFile``.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx2
import yaml
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import Cluster, Context, User
from lightkube.exceptions import ConfigError
from msgspec import ValidationError
from msgspec.structs import fields

from cloudgraft.documents import ForeignDocumentError, parse_yaml
from cloudgraft.kube.networks import AllowedNetworks
from cloudgraft.sdk.common.files import is_file
from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
Credentials = SingleConfig
# Nothing; or what Rancher has in front of each cluster's API.
_SERVER_PATH: Final = re.compile(r"/?|/k8s/clusters/[A-Za-z0-9][-A-Za-z0-9]*/?")
_USER_DATA: Final = ("token", "username", "password", "client_cert_data", "client_key_data")


def from_kubeconfig(path: Path) -> Credentials:
    """Reads the current context of a file. Without a user it is anonymous. Raises InvalidArgumentError."""
    with usable(f"the kubeconfig {path}"):
        config, user = _chosen(yaml.safe_load(path.read_text()), path)
        if user.token_file is not None:
            user.token_file = str(config.abs_file(user.token_file))
        return config


def from_foreign_text(text: str, name: str, networks: AllowedNetworks) -> Credentials:
    """Reads the current context of a foreign kubeconfig. Raises InvalidArgumentError.

    It must be self-contained: a program or a file in it would let its author choose what we run or read. It must lead
    by https to an API in an allowed network. Takes up to a second: call it in a thread.
    """
    with usable(name):
        config, user = _chosen(parse_yaml(text), None)
        cluster = config.cluster
        reaching = {
            "exec": user.exec,
            "auth-provider": user.auth_provider,
            "tokenFile": user.token_file,
            "client-certificate": user.client_cert,
            "client-key": user.client_key,
            "certificate-authority": cluster.certificate_auth,
        }
        if found := next((key for key, value in reaching.items() if value), ""):
            raise ConfigError(f"it has {found}, which would reach into this computer; put the data itself into it")
        if cluster.insecure:
            raise ConfigError("it says insecure-skip-tls-verify; give it certificate-authority-data")
        _check_foreign_server(str(cluster.server), networks)
        return config


def _check_foreign_server(server: str, networks: AllowedNetworks) -> None:
    parts = urlsplit(server)
    if parts.scheme != "https" or not parts.hostname:
        raise ConfigError("its server is no https address")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("its server holds a user or a password; put them under users")
    if parts.query or parts.fragment or not _SERVER_PATH.fullmatch(parts.path):
        raise ConfigError("its server is more than an address: leave out what comes after the port")
    if parts.port == 0:  # accessing one that is too large raises
        raise ConfigError("its server has no port that can be")
    if _is_address(parts.hostname) and not networks.allows(parts.hostname):
        raise ConfigError(networks.refusal(f"its server {parts.hostname}"))


def _is_address(host: str) -> bool:
    """Recognizes also the forms that only the system's resolver knows, such as 127.1 and 2130706433."""
    return ":" in host or host.rpartition(".")[2].isdigit() or host.lower().startswith("0x")


def plain_text(credentials: Credentials) -> str:
    """A kubeconfig with the checked parts of a foreign one, and nothing else."""
    cluster, user = credentials.cluster, credentials.user or User()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "remote", "cluster": _given(cluster, "server", "certificate_auth_data")}],
        "users": [{"name": "remote", "user": _given(user, *_USER_DATA)}],
        "contexts": [{"name": "remote", "context": {"cluster": "remote", "user": "remote"}}],
        "current-context": "remote",
    }
    return json.dumps(config)  # JSON is YAML


def _given(section: Cluster | User, *names: str) -> dict[str, str]:
    keys = {field.name: field.encode_name for field in fields(type(section))}
    found = {keys[name]: getattr(section, name) for name in names}
    return {key: value for key, value in found.items() if value}


def _chosen(content: object, path: Path | None) -> tuple[Credentials, User]:
    if not isinstance(content, dict):
        raise ConfigError("it is not a mapping")
    config = KubeConfig.from_dict(content, fname=path).get()
    if config is None:
        raise ConfigError("no context is chosen")
    user = config.user or User()  # lightkube would fail without one
    return config._replace(user=user), user


def from_service_account(directory: Path = SERVICE_ACCOUNT, environment: Mapping[str, str] = os.environ) -> Credentials:
    """Reads the service account of this pod. Raises PreconditionError when there is none."""
    token, authority = directory / "token", directory / "ca.crt"
    host, port = (environment.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    missing = next((str(file) for file in (token, authority) if not is_file(file)), "")
    if not host or not port or missing:
        what = f"there is no {missing}" if missing else "KUBERNETES_SERVICE_HOST and _PORT are not set"
        raise PreconditionError(
            f"inCluster: true works only in a pod with a service account: {what}; elsewhere, name a kubeconfig, and in "
            "a pod, leave automountServiceAccountToken on"
        )
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return SingleConfig(
        context_name="service-account",
        context=Context(cluster="service-account", user="service-account"),
        cluster=Cluster(server=server, certificate_auth=str(authority)),
        user=User(token_file=str(token)),
    )


def authority_of(credentials: Credentials) -> str:
    """The certificates of the API's authority, as PEM; empty when the kubeconfig has none."""
    cluster = credentials.cluster
    with usable("the authority of the cluster"):
        if cluster.certificate_auth:
            return Path(credentials.abs_file(cluster.certificate_auth)).read_text()
        return base64.b64decode(cluster.certificate_auth_data or "").decode()


@contextmanager
def usable(name: str) -> Iterator[None]:
    """Maps every error of a file, or of one that it names, to one of our errors, without its secrets."""
    try:
        yield
    except ForeignDocumentError as error:
        raise InvalidArgumentError(f"{name} cannot be used: {error.message}") from error
    except yaml.YAMLError as error:
        # Without its own message, which quotes the line: it may contain the token.
        raise InvalidArgumentError(f"{name} is not valid YAML") from error
    except KeyError as error:
        raise InvalidArgumentError(f"{name} has no {error}") from error
    except FileNotFoundError as error:
        raise InvalidArgumentError(f"{name}: {error.filename or 'a file'} not found") from error
    except RecursionError:  # without its own trace, which is as deep
        raise InvalidArgumentError(f"{name} cannot be used: it is nested too deeply") from None
    except (ConfigError, ValidationError, TypeError, ValueError, OSError, httpx2.InvalidURL) as error:
        raise InvalidArgumentError(f"{name} cannot be used: {error}") from error
