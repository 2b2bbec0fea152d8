//! What a client sends beside its calls: pings, settings, empty frames and the like cost it nothing, and are bounded.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes without a call that end a connection, if they come within `TIME`. Above the window of a connection: so much
/// of messages may have been read before their calls are looked at.
const MOST: u64 = 2 * 1024 * 1024;
const TIME: Duration = Duration::from_secs(2);

/// Bytes that a connection has read.
#[derive(Default)]
pub struct Received {
    total: AtomicU64,
    /// Since a call began or ended, without the data of messages.
    overhead: AtomicU64,
}

impl Received {
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// So much was the data of a message.
    pub fn forgive(&self, length: usize) {
        let overhead = self.overhead.load(Ordering::Relaxed);
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        self.overhead.store(overhead.saturating_sub(length), Ordering::Relaxed);
    }

    pub fn reset(&self) {
        self.overhead.store(0, Ordering::Relaxed);
    }

    pub fn is_flood(&self) -> bool {
        self.overhead.load(Ordering::Relaxed) > MOST
    }

    fn add(&self, length: usize) {
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        self.total.fetch_add(length, Ordering::Relaxed);
        self.overhead.fetch_add(length, Ordering::Relaxed);
    }
}

/// A connection whose reading is counted, and ends in an error in a flood.
pub struct Watched<I> {
    io: I,
    received: Arc<Received>,
    since: Instant,
}

impl<I> Watched<I> {
    pub fn new(io: I, received: Arc<Received>) -> Self {
        Self { io, received, since: Instant::now() }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Watched<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.since.elapsed() > TIME {
            self.since = Instant::now();
            self.received.reset();
        }
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.io).poll_read(context, buffer);
        self.received.add(buffer.filled().len() - before);
        if self.received.is_flood() {
            return Poll::Ready(Err(io::Error::other("a flood of frames without a call")));
        }
        result
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Watched<I> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
