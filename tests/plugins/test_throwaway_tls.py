from __future__ import annotations

import ssl
import stat
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from cloudgraft.plugins.throwaway_tls import HostTls, make_key_pair


def test_every_pair_is_new_on_p256_for_localhost() -> None:
    first, second = (x509.load_pem_x509_certificate(make_key_pair().certificate) for _ in range(2))
    assert first.public_key() != second.public_key()
    assert first.serial_number != second.serial_number
    key = first.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert isinstance(key.curve, ec.SECP256R1)
    names = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]


def test_the_key_is_not_in_the_repr() -> None:
    pair = make_key_pair()
    assert "PRIVATE" not in repr(pair)
    assert "PRIVATE" not in repr(HostTls(client=pair, server=pair))


def test_the_files_for_a_plugin_are_readable_by_its_user_only(tmp_path: Path) -> None:
    tls = HostTls()
    tls.write(tmp_path / "tls")
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "tls").iterdir()} == {
        "server.crt": 0o600,
        "server.key": 0o600,
        "client-ca.crt": 0o600,
    }
    assert (tmp_path / "tls" / "client-ca.crt").read_bytes() == tls.client.certificate
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
        tmp_path / "tls" / "server.crt", tmp_path / "tls" / "server.key"
    )
