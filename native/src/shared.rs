//! What all connections of one listener share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use lru::LruCache;
use rustls::ServerConfig;
use tokio::sync::{oneshot, watch};

use crate::connections::Connections;
use crate::handover::{Certificate, Event, Identity, Outbox, Place};
use crate::metrics::{Histogram, Refusals};
use crate::request_key::KeyKind;
use crate::side_services::SideServices;
use crate::table::Table;

/// Certificates of clients whose names are remembered.
const MOST_IDENTITIES: usize = 256;
/// How long Python is waited for; after that the old certificate, or the last known state, serves.
const PATIENCE: Duration = Duration::from_secs(1);

/// How much of the server its clients may take.
#[derive(Debug, Clone)]
pub struct Limits {
    pub connections: usize,
    /// Calls under way on one connection.
    pub streams: u32,
    /// Calls that Python has at once.
    pub calls: usize,
    pub header_bytes: u32,
    pub message_bytes: usize,
    /// From the connection to its first HTTP/2 frame, and from a call's headers to its message.
    pub handshake: Duration,
    /// Without a call, after which a connection is closed in an orderly way.
    pub idle: Duration,
    /// With calls that do not go on, after which a connection is cut.
    pub stall: Duration,
}

/// One of the service's methods.
pub struct Method {
    pub name: Arc<str>,
    pub number: u8,
    pub key: KeyKind,
    pub answered: Histogram,
}

pub struct Shared {
    pub limits: Limits,
    pub methods: HashMap<String, Method>,
    pub table: Arc<Table>,
    pub outbox: Outbox,
    pub connections: Arc<Connections>,
    pub refusals: Refusals,
    pub side: SideServices,
    pub open_calls: Arc<AtomicUsize>,
    /// Bytes of the messages of all calls, those that are still being read among them.
    pub held_bytes: Arc<AtomicUsize>,
    /// Of the last call that was answered from the table, since the epoch.
    pub last_call: AtomicU64,
    pub is_stopping: watch::Sender<bool>,
    tls: RwLock<Option<Arc<ServerConfig>>>,
    identities: Mutex<LruCache<Vec<u8>, Identity>>,
    unknown: Arc<AtomicUsize>,
    numbers: AtomicU64,
}

impl Shared {
    pub fn new(
        limits: Limits,
        methods: HashMap<String, Method>,
        table: Arc<Table>,
        outbox: Outbox,
        side: SideServices,
    ) -> Self {
        Self {
            limits,
            methods,
            table,
            outbox,
            connections: Arc::default(),
            refusals: Refusals::default(),
            side,
            open_calls: Arc::default(),
            held_bytes: Arc::default(),
            last_call: AtomicU64::new(0),
            is_stopping: watch::Sender::new(false),
            tls: RwLock::new(None),
            identities: Mutex::new(LruCache::new(MOST_IDENTITIES.try_into().expect("not zero"))),
            unknown: Arc::default(),
            numbers: AtomicU64::new(0),
        }
    }

    pub fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub fn set_tls(&self, config: Arc<ServerConfig>) {
        *self.tls.write().unwrap_or_else(PoisonError::into_inner) = Some(config);
    }

    /// Ready once the listener is being stopped.
    pub async fn stopping(&self) {
        let _ = self.is_stopping.subscribe().wait_for(|is_stopping| *is_stopping).await;
    }

    /// What the next handshake begins with, after Python has looked whether there is a new certificate.
    pub async fn current_tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.read().unwrap_or_else(PoisonError::into_inner).as_ref()?;
        self.wait_for_python("connection").await;
        self.tls.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until Python has brought this listener up to date, but not for long.
    pub async fn wait_for_python(&self, reason: &'static str) {
        let _ = tokio::time::timeout(PATIENCE, self.outbox.wait(reason)).await;
    }

    /// Whose certificate this is. Python says so once; a certificate that it cannot read is nobody's.
    pub async fn identify(&self, der: &[u8]) -> Option<Identity> {
        let known = self.identities.lock().unwrap_or_else(PoisonError::into_inner).get(der).cloned();
        if known.is_some() {
            return known;
        }
        let place = Place::take(&self.unknown, self.limits.connections)?;
        let (sender, receiver) = oneshot::channel();
        let identity = Mutex::new(Some(sender));
        self.outbox.push(Event::Certificate(Certificate { der: der.to_vec(), identity, place }));
        let identity = receiver.await.ok()?;
        let mut identities = self.identities.lock().unwrap_or_else(PoisonError::into_inner);
        identities.put(der.to_vec(), identity.clone());
        Some(identity)
    }
}
