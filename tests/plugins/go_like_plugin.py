"""A plugin that behaves as one made with hashicorp/go-plugin: what it does on the wire was seen from a real one.

Its certificate is on the curve P-521, its health service answers for "plugin", and its output comes as a stream.
grpcio does not take a key on that curve, so Python's ssl speaks TLS in front of it.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

DIRECTORY = Path(os.environ["PLUGIN_UNIX_SOCKET_DIR"])
INNER, FRONT = DIRECTORY / "inner", DIRECTORY / "plugin123456789"


def make_certificate(path: Path) -> bytes:
    key = ec.generate_private_key(ec.SECP521R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=10957)
    )
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    certificate = builder.sign(key, hashes.SHA512())
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.TraditionalOpenSSL
    path.write_bytes(certificate.public_bytes(pem) + key.private_bytes(pem, form, serialization.NoEncryption()))
    return certificate.public_bytes(serialization.Encoding.DER)


async def node_groups(_request: bytes, _context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
    return b"\x0a\x06\x0a\x02go\x18\x05"  # one group: id "go", maxSize 5


async def stdio(_request: bytes, _context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    yield b"\x08\x02\x12\x0eprinted by Go\n"  # StdioData: stderr
    await asyncio.Event().wait()


async def start_grpc() -> grpc.aio.Server:
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    groups: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(node_groups)
    stream: grpc.RpcMethodHandler[Any, Any] = grpc.unary_stream_rpc_method_handler(stdio)
    service = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider"
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(service, {"NodeGroups": groups}),
            grpc.method_handlers_generic_handler("plugin.GRPCStdio", {"StreamStdio": stream}),
        )
    )
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    server.add_insecure_port(f"unix:{INNER}")
    await server.start()
    await servicer.set("plugin", health_pb2.HealthCheckResponse.SERVING)
    return server


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    inner_reader, inner_writer = await asyncio.open_unix_connection(INNER)
    await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer), return_exceptions=True)


async def main() -> None:
    certificate = make_certificate(DIRECTORY / "own.pem")
    server = await start_grpc()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(DIRECTORY / "own.pem")
    context.load_verify_locations(cadata=os.environ["PLUGIN_CLIENT_CERT"])
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    front = await asyncio.start_unix_server(accept, FRONT, ssl=context)
    encoded = base64.b64encode(certificate).decode().rstrip("=")
    print(f"1|1|unix|{FRONT}|grpc|{encoded}", flush=True)
    await front.serve_forever()
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(main())
