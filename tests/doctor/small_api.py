"""As much of a Kubernetes API as doctor reads, over real HTTP: lists, single objects, and who may do what."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Json = dict[str, Any]


class SmallApi:
    """Objects by their path, as ``apis/apps/v1/namespaces/kube-system/deployments/cluster-autoscaler``."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.denied: set[tuple[str, str]] = set()  # verb and resource, to whoever is asked for
        self.only: dict[tuple[str, str], str] = {}  # verb and resource: the name of the one that this is allowed for
        self.forbidden: set[str] = set()  # paths that are refused to whoever reads
        self.methods: set[str] = set()
        self.version = "v1.34.4"
        self.port = 0

    def put(self, path: str, manifest: Json) -> None:
        *_, kind, name = path.split("/")
        namespace = path.partition("/namespaces/")[2].partition("/")[0]
        meta = {"name": name, "uid": f"{kind}-{name}", **manifest.get("metadata", {})}
        self.objects[path] = {**manifest, "metadata": meta | ({"namespace": namespace} if namespace else {})}

    def answer(self, method: str, path: str, body: Json) -> tuple[int, Json]:
        self.methods.add(method)
        if path in self.forbidden:
            return 403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "forbidden"}
        if path == "version":
            return 200, {"gitVersion": self.version, "major": "1", "minor": "34"}
        if path.endswith("accessreviews"):
            asked = body["spec"]["resourceAttributes"]
            resource = "/".join(filter(None, (asked["resource"], asked.get("subresource", ""))))
            what = (asked["verb"], resource)
            is_other = what in self.only and asked.get("name") != self.only[what]
            return 201, {"status": {"allowed": what not in self.denied and not is_other}}
        if path in self.objects:
            return 200, self.objects[path]
        plural = path.rpartition("/")[2]
        items = [found for key, found in self.objects.items() if key.split("/")[-2] == plural]
        if method == "GET" and (items or plural in {"nodes", "deployments", "daemonsets"}):
            return 200, {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}
        return 404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}

    def kubeconfig(self, directory: Path) -> Path:
        path = directory / "kubeconfig"
        cluster = {"server": f"http://127.0.0.1:{self.port}"}
        config = {
            "clusters": [{"name": "small", "cluster": cluster}],
            "users": [{"name": "somebody", "user": {"token": "not-a-secret"}}],
            "contexts": [{"name": "small", "context": {"cluster": "small", "user": "somebody"}}],
            "current-context": "small",
        }
        path.write_text(json.dumps(config))
        return path


@contextmanager
def serving(api: SmallApi) -> Iterator[SmallApi]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            body = json.loads(self.rfile.read(length) or b"{}")
            code, answer = api.answer(self.command, self.path.partition("?")[0].strip("/"), body)
            data = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_PATCH = do_PUT = do_DELETE = do_GET  # noqa: N815 - the base class wants these names

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    api.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


# -- a cluster that is as it should be ---------------------------------------------------------------------------------

DEPLOYMENT = "apis/apps/v1/namespaces/kube-system/deployments/cluster-autoscaler"
CLOUD_CONFIG = "api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-cloud-config"


def with_autoscaler(api: SmallApi, *more: str, image: str = "v1.34.3", cloud_config: str = "") -> None:
    """The autoscaler as deploy/ has it, with more flags, or another cloud-config."""
    container = {
        "name": "cluster-autoscaler",
        "image": f"registry.k8s.io/autoscaling/cluster-autoscaler:{image}",
        "command": [
            "./cluster-autoscaler",
            "--cloud-provider=externalgrpc",
            "--cloud-config=/etc/cloudgraft/config/cloud-config.yaml",
            *more,
        ],
        "volumeMounts": [
            {"name": "cloud-config", "mountPath": "/etc/cloudgraft/config"},
            {"name": "tls", "mountPath": "/etc/cloudgraft/tls"},
        ],
    }
    volumes = [
        {"name": "cloud-config", "configMap": {"name": "cluster-autoscaler-cloud-config"}},
        {"name": "tls", "secret": {"secretName": "cloudgraft-client-tls"}},
    ]
    pod = {"serviceAccountName": "cluster-autoscaler", "containers": [container], "volumes": volumes}
    api.put(DEPLOYMENT, {"spec": {"replicas": 1, "template": {"spec": pod}}})
    text = cloud_config or (
        "address: cloudgraft.kube-system.svc:8086\nkey: /etc/cloudgraft/tls/tls.key\n"
        "cert: /etc/cloudgraft/tls/tls.crt\ncacert: /etc/cloudgraft/tls/ca.crt\n"
    )
    api.put(CLOUD_CONFIG, {"data": {"cloud-config.yaml": text}})


def node(name: str, provider_id: str = "", **labels: str) -> Json:
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": provider_id} if provider_id else {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
