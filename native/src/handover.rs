//! Hands calls over to Python, and takes its answers.
//!
//! No thread of ours ever waits for the interpreter: what Python has to do is put into a queue, and a byte in a socket
//! wakes its event loop, which takes everything that is there.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tokio::sync::{oneshot, watch};

use crate::grpc::{self, Held, Status};
use crate::table::{Key, Table};

/// Refused calls that wait to be logged; beyond that they are only counted.
const MOST_REFUSED: usize = 256;

/// What Python's event loop has to do.
pub enum Event {
    Call(Call),
    Cancelled(u64),
    Waiting(Waiting),
    Certificate(Certificate),
    Refused(Refused),
    Stopped,
}

/// How Python ends a call.
pub enum Answer {
    Message(Bytes),
    Status(Status),
}

/// A queue of events, and the socket that tells Python of them.
pub struct Outbox {
    queue: Mutex<VecDeque<Event>>,
    /// By reason: what others that wait for the same join, until Python has taken it.
    waiting: Mutex<HashMap<&'static str, watch::Receiver<()>>>,
    refused: AtomicUsize,
    sending: UnixStream,
    receiving: UnixStream,
}

impl Outbox {
    pub fn new() -> io::Result<Self> {
        let (sending, receiving) = UnixStream::pair()?;
        sending.set_nonblocking(true)?;
        receiving.set_nonblocking(true)?;
        Ok(Self {
            queue: Mutex::default(),
            waiting: Mutex::default(),
            refused: AtomicUsize::new(0),
            sending,
            receiving,
        })
    }

    pub fn push(&self, event: Event) {
        if matches!(event, Event::Refused(_)) && self.refused.fetch_add(1, Ordering::Relaxed) >= MOST_REFUSED {
            self.refused.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let was_empty = queue.is_empty();
        queue.push_back(event);
        drop(queue);
        if was_empty {
            // A socket that is full wakes Python anyway.
            let _ = (&self.sending).write(&[1]);
        }
    }

    /// Ready when Python has done what there is to do before it. However many wait, there is one event for all.
    pub async fn wait(&self, reason: &'static str) {
        let mut done = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.entry(reason).or_insert_with(|| self.push_waiting(reason)).clone()
        };
        let _ = done.changed().await;
    }

    fn push_waiting(&self, reason: &'static str) -> watch::Receiver<()> {
        let (sender, receiver) = watch::channel(());
        self.push(Event::Waiting(Waiting { reason, go_on: Mutex::new(Some(sender)) }));
        receiver
    }

    pub fn take(&self) -> VecDeque<Event> {
        let mut bytes = [0; 64];
        while matches!((&self.receiving).read(&mut bytes), Ok(length) if length == bytes.len()) {}
        let taken = std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner));
        self.refused.store(0, Ordering::Relaxed);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for event in &taken {
            if let Event::Waiting(event) = event {
                waiting.remove(event.reason); // who comes from now on waits for the next
            }
        }
        taken
    }

    pub fn descriptor(&self) -> RawFd {
        self.receiving.as_raw_fd()
    }
}

/// A place among the calls that Python may have at once, until it has dropped the call.
pub struct Place(Arc<AtomicUsize>);

impl Place {
    pub fn take(count: &Arc<AtomicUsize>, limit: usize) -> Option<Self> {
        if count.fetch_add(1, Ordering::Relaxed) >= limit {
            count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Self(Arc::clone(count)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a reply is kept under, if Python says that it may be kept.
pub struct Keeping {
    pub table: Arc<Table>,
    pub key: Key,
    pub began: u64,
}

/// One call that Python answers, once: with `reply` or `fail`. Dropped without an answer it ends with INTERNAL.
#[pyclass(frozen)]
pub struct Call {
    #[pyo3(get)]
    pub number: u64,
    pub method: Arc<str>,
    pub peer: Arc<str>,
    /// The names in the client's certificate.
    pub client: Arc<str>,
    /// Until the client gives up; None when it never does.
    #[pyo3(get)]
    pub seconds_left: Option<f64>,
    /// The W3C header of the caller's trace; empty for none.
    pub traceparent: Box<str>,
    pub message: Bytes,
    pub held: Held,
    pub answer: Mutex<Option<oneshot::Sender<Answer>>>,
    pub keeping: Option<Keeping>,
    pub place: Place,
}

#[pymethods]
impl Call {
    #[getter]
    fn method(&self) -> &str {
        &self.method
    }

    #[getter]
    fn peer(&self) -> &str {
        &self.peer
    }

    /// The names in the client's certificate.
    #[getter]
    fn client(&self) -> &str {
        &self.client
    }

    #[getter]
    fn traceparent(&self) -> &str {
        &self.traceparent
    }

    /// The request as it came.
    #[getter]
    fn message<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.message)
    }

    /// Answers with a message. With subjects, the same question is answered with it until one of them is published.
    #[pyo3(signature = (message, subjects=None))]
    fn reply(&self, message: &[u8], subjects: Option<Vec<String>>) {
        let message = grpc::framed(message);
        if let (Some(keeping), Some(subjects)) = (&self.keeping, subjects) {
            let subjects = subjects.into_iter().map(String::into_boxed_str).collect();
            keeping.table.keep(keeping.key.clone(), message.clone(), subjects, keeping.began);
        }
        self.end(Answer::Message(message));
    }

    /// Ends the call with a status.
    fn fail(&self, code: i32, message: String, metadata: Vec<(String, String)>) {
        self.end(Answer::Status(Status { code, message, metadata }));
    }
}

impl Call {
    fn end(&self, answer: Answer) {
        let sender = self.answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sender) = sender {
            let _ = sender.send(answer); // the caller may have left
        }
    }
}

/// Some wait until Python has brought this listener up to date.
#[pyclass(frozen)]
pub struct Waiting {
    /// "connection": its handshake uses the newest certificate. "health": the answer is the state of this moment.
    #[pyo3(get)]
    pub reason: &'static str,
    pub go_on: Mutex<Option<watch::Sender<()>>>,
}

#[pymethods]
impl Waiting {
    /// Lets it go on.
    fn go_on(&self) {
        self.go_on.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Who a client is, by the names in its certificate.
#[derive(Clone)]
pub struct Identity {
    pub names: Arc<str>,
    pub is_allowed: bool,
}

/// A client's certificate, of which Python says whose it is and whether that one may call.
#[pyclass(frozen)]
pub struct Certificate {
    pub der: Vec<u8>,
    pub identity: Mutex<Option<oneshot::Sender<Identity>>>,
    pub place: Place,
}

#[pymethods]
impl Certificate {
    /// The certificate in binary form.
    #[getter]
    fn der<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.der)
    }

    /// Says who it is.
    fn identify(&self, names: String, is_allowed: bool) {
        if let Some(sender) = self.identity.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = sender.send(Identity { names: names.into(), is_allowed });
        }
    }
}

/// A call of a client that may not call; it was answered already.
#[pyclass(frozen)]
pub struct Refused {
    pub peer: Arc<str>,
    pub client: Arc<str>,
    pub method: String,
}

#[pymethods]
impl Refused {
    #[getter]
    fn peer(&self) -> &str {
        &self.peer
    }

    #[getter]
    fn client(&self) -> &str {
        &self.client
    }

    #[getter]
    fn method(&self) -> &str {
        &self.method
    }
}

/// The caller of this call has left.
#[pyclass(frozen, get_all)]
pub struct Cancelled {
    pub number: u64,
}

/// The listener has stopped: no connection is left.
#[pyclass(frozen)]
pub struct Stopped;

impl Event {
    pub fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self {
            Self::Call(call) => Py::new(py, call)?.into_any(),
            Self::Cancelled(number) => Py::new(py, Cancelled { number })?.into_any(),
            Self::Waiting(waiting) => Py::new(py, waiting)?.into_any(),
            Self::Certificate(certificate) => Py::new(py, certificate)?.into_any(),
            Self::Refused(refused) => Py::new(py, refused)?.into_any(),
            Self::Stopped => Py::new(py, Stopped)?.into_any(),
        })
    }
}
