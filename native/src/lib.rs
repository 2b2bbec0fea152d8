//! The autoscaler's listener: HTTP/2, TLS and gRPC without Python, and replies that are sent without it.
//!
//! Python gives every answer once. What may be kept is sent from the table from then on (`table.rs`); everything else
//! goes through a queue to Python's event loop (`handover.rs`).

mod clock;
mod connection;
mod connections;
mod grpc;
mod handover;
mod listener;
mod metrics;
mod received;
mod request_key;
mod shared;
mod side_services;
mod table;
mod tls;

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::handover::{Call, Cancelled, Certificate, Outbox, Refused, Stopped, Waiting};
use crate::listener::Listening;
use crate::metrics::Histogram;
use crate::request_key::KeyKind;
use crate::shared::{Limits, Method, Shared};
use crate::side_services::SideServices;
use crate::table::Table;

/// Nanoseconds that Python's event loop may be silent: ready replies must not hide a hung engine for longer.
const SILENCE: u64 = 15_000_000_000;

/// One listening address for one gRPC service. All methods return at once.
#[pyclass(frozen)]
struct Listener {
    shared: Arc<Shared>,
    listening: Mutex<Option<Listening>>,
}

#[pymethods]
impl Listener {
    /// Prepares a listener; `start` opens it.
    ///
    /// `methods` gives for each method how its replies are kept: "" never, "message" by the whole request, "node" by
    /// the node's providerID and name. `descriptors` is an encoded FileDescriptorSet. Times are in seconds.
    #[new]
    #[pyo3(signature = (service, methods, *, descriptors, healthy_names, buckets, table_bytes, connections, streams,
        calls, header_bytes, message_bytes, handshake, idle, stall))]
    #[expect(clippy::too_many_arguments, reason = "they are named, in Python")]
    fn new(
        service: &str,
        methods: HashMap<String, String>,
        descriptors: &[u8],
        healthy_names: Vec<String>,
        buckets: Vec<f64>,
        table_bytes: usize,
        connections: usize,
        streams: u32,
        calls: usize,
        header_bytes: u32,
        message_bytes: usize,
        handshake: f64,
        idle: f64,
        stall: f64,
    ) -> PyResult<Self> {
        let limits = Limits {
            connections,
            streams,
            calls,
            header_bytes,
            message_bytes,
            handshake: seconds(handshake)?,
            idle: seconds(idle)?,
            stall: seconds(stall)?,
        };
        let side = SideServices::new(healthy_names, service, descriptors).map_err(PyValueError::new_err)?;
        let shared = Shared::new(
            limits,
            methods_of(service, methods, &buckets)?,
            Arc::new(Table::new(table_bytes)),
            Outbox::new()?,
            side,
        );
        Ok(Self { shared: Arc::new(shared), listening: Mutex::new(None) })
    }

    /// Opens the address and begins to serve; gives the address with its real port. OSError when it cannot be had.
    fn start(&self, py: Python<'_>, address: String) -> PyResult<String> {
        let mut listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        if listening.is_some() {
            return Err(PyRuntimeError::new_err("it was started already"));
        }
        let started = py.detach(|| Listening::start(Arc::clone(&self.shared), &address)).map_err(PyOSError::new_err)?;
        let address = started.address.clone();
        *listening = Some(started);
        Ok(address)
    }

    /// Readable when `take` has something to give.
    fn fileno(&self) -> RawFd {
        self.shared.outbox.descriptor()
    }

    /// What there is to do, the oldest first.
    fn take(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        self.shared.outbox.take().into_iter().map(|event| event.into_python(py)).collect()
    }

    /// The certificate of connections from now on, and the authorities of their clients, in PEM.
    fn set_tls(&self, cert: &[u8], key: &[u8], client_ca: &[u8]) -> PyResult<()> {
        let config = tls::server_config(cert, key, client_ca).map_err(PyValueError::new_err)?;
        self.shared.set_tls(config);
        Ok(())
    }

    /// The event loop is at work, and says whether the server can be used. After `SILENCE` without one the server
    /// counts as hung: the table closes, and the health service says NOT_SERVING.
    fn beat(&self, is_usable: bool) {
        let alive_until = clock::boot_nanoseconds() + SILENCE;
        self.shared.table.alive_until(alive_until);
        self.shared.side.beat(is_usable, alive_until);
        if let Some(listening) = &*self.listening.lock().unwrap_or_else(PoisonError::into_inner) {
            listening.report();
        }
    }

    /// Until when the provider stands by its answers, by CLOCK_BOOTTIME in seconds; 0 closes the table at once.
    fn valid_until(&self, seconds: f64) {
        let finite = Duration::try_from_secs_f64(seconds).ok();
        let otherwise = if seconds > 0.0 { u64::MAX } else { 0 };
        let until = finite.and_then(|until| u64::try_from(until.as_nanos()).ok()).unwrap_or(otherwise);
        self.shared.table.valid_until(until);
    }

    /// Whether Python answers every call.
    fn bypass(&self, is_bypassed: bool) {
        self.shared.table.bypass(is_bypassed);
    }

    /// Invalidates the replies that depend on one of these, in one step.
    fn publish(&self, subjects: Vec<String>) {
        self.shared.table.publish(subjects.into_iter().map(String::into_boxed_str));
    }

    /// Invalidates all replies.
    fn clear(&self) {
        self.shared.table.clear();
    }

    /// Ends all connections at once; new ones are welcome.
    fn drop_connections(&self) {
        self.shared.connections.close_all();
    }

    /// Accepts no more connections; the others end with their calls, and then `take` gives a Stopped.
    fn stop(&self) {
        if let Some(listening) = &*self.listening.lock().unwrap_or_else(PoisonError::into_inner) {
            listening.stop(&self.shared);
        }
    }

    /// Open connections.
    fn connections(&self) -> usize {
        self.shared.connections.len()
    }

    /// Why connections and calls were refused, and how often.
    fn refusals(&self) -> HashMap<&'static str, u64> {
        let refusals = &self.shared.refusals;
        HashMap::from([
            ("not_allowed", refusals.not_allowed.load(Ordering::Relaxed)),
            ("flood", refusals.flood.load(Ordering::Relaxed)),
            ("too_many", refusals.too_many.load(Ordering::Relaxed)),
            ("too_slow", refusals.too_slow.load(Ordering::Relaxed)),
        ])
    }

    /// Of each method: calls that were answered from the table, by bucket, and the sum of their seconds.
    fn answered(&self) -> HashMap<String, (Vec<u64>, f64)> {
        let methods = self.shared.methods.values();
        methods.map(|method| (method.name.to_string(), method.answered.read())).collect()
    }

    /// Hits, misses, entries and bytes of the table.
    fn table(&self) -> (u64, u64, usize, usize) {
        let counts = self.shared.table.counts();
        (counts.hits, counts.misses, counts.entries, counts.bytes)
    }

    /// When the last call was answered from the table, in seconds since the epoch; 0 for never.
    fn last_call(&self) -> f64 {
        Duration::from_nanos(self.shared.last_call.load(Ordering::Relaxed)).as_secs_f64()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop();
        self.drop_connections();
    }
}

fn seconds(value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value).map_err(|error| PyValueError::new_err(format!("{value} s: {error}")))
}

fn methods_of(service: &str, kinds: HashMap<String, String>, buckets: &[f64]) -> PyResult<HashMap<String, Method>> {
    let mut methods = HashMap::new();
    for (number, (name, kind)) in (0..).zip(kinds) {
        let key = match kind.as_str() {
            "" => KeyKind::None,
            "message" => KeyKind::Message,
            "node" => KeyKind::Node,
            other => return Err(PyValueError::new_err(format!("replies of {name} cannot be kept by {other:?}"))),
        };
        let method = Method { name: name.as_str().into(), number, key, answered: Histogram::new(buckets) };
        methods.insert(format!("/{service}/{name}"), method);
    }
    Ok(methods)
}

#[pymodule]
fn cloudgraft_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Listener>()?;
    module.add_class::<Call>()?;
    module.add_class::<Cancelled>()?;
    module.add_class::<Waiting>()?;
    module.add_class::<Certificate>()?;
    module.add_class::<Refused>()?;
    module.add_class::<Stopped>()
}
