//! mTLS: one certificate of the server, and clients with a certificate of an authority.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};

/// What connections begin with, from PEM files. A client without a certificate of the authority fails in the handshake.
pub fn server_config(cert: &[u8], key: &[u8], client_ca: &[u8]) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    for authority in certificates(client_ca)? {
        roots.add(authority).map_err(|error| format!("a client authority cannot be used: {error}"))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| format!("the client authorities cannot be used: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("the key cannot be read: {error}"))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates(cert)?, key)
        .map_err(|error| format!("the certificate and the key cannot be used: {error}"))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A session that is resumed would outlive the authority that its certificate was checked against.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.map_err(|error| format!("a certificate cannot be read: {error}"))
}
