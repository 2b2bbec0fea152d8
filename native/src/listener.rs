//! The listening socket, and the thread on which all of its connections live.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::linux::fs::MetadataExt;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener as StdUnixListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::future::join_all;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};

use crate::connection;
use crate::connections::Admission;
use crate::handover::Event;
use crate::metrics::count;
use crate::shared::Shared;

const BACKLOG: i32 = 1024;
/// After a failed accept: the descriptors are used up, most likely.
const PAUSE: Duration = Duration::from_millis(50);
const REPORT_EVERY: Duration = Duration::from_secs(1);

enum Socketed {
    Tcp(std::net::TcpListener),
    Unix(StdUnixListener, Option<SocketFile>),
}

/// A listener that accepts connections, and where it does.
pub struct Listening {
    pub address: String,
    stop: Arc<Notify>,
    report: Arc<Notify>,
}

impl Listening {
    /// Opens the address and serves it on a thread of its own.
    pub fn start(shared: Arc<Shared>, address: &str) -> io::Result<Self> {
        let (sockets, address) = bind(address)?;
        let (stop, report) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (ready, is_ready) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stopped, reported) = (Arc::clone(&stop), Arc::clone(&report));
        thread::Builder::new().name("listener".into()).spawn(move || {
            runtime.block_on(async move {
                shared.side.report().await;
                let _ = ready.send(());
                tokio::select! {
                    _ = join_all(sockets.into_iter().map(|socket| accept_all(&shared, socket))) => {}
                    () = keep_reporting(&shared, &reported) => {}
                    () = stopped.notified() => {}
                }
                shared.connections.wait_until_empty().await;
                shared.outbox.push(Event::Stopped);
            });
        })?;
        let _ = is_ready.blocking_recv();
        Ok(Self { address, stop, report })
    }

    /// Accepts no more; connections end when their calls have.
    pub fn stop(&self, shared: &Shared) {
        shared.is_stopping.send_replace(true);
        self.stop.notify_one();
    }

    /// Has the health service look at once.
    pub fn report(&self) {
        self.report.notify_one();
    }
}

async fn keep_reporting(shared: &Shared, now: &Notify) {
    loop {
        let _ = timeout(REPORT_EVERY, now.notified()).await;
        shared.side.report().await;
    }
}

async fn accept_all(shared: &Arc<Shared>, socket: Socketed) {
    match socket {
        Socketed::Tcp(listener) => {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            loop {
                match listener.accept().await {
                    Ok((stream, peer)) => {
                        let _ = stream.set_nodelay(true);
                        admit(shared, &peer.ip().to_canonical().to_string(), peer_name(peer), stream).await;
                    }
                    Err(_) => sleep(PAUSE).await,
                }
            }
        }
        Socketed::Unix(listener, _file) => {
            let Ok(listener) = UnixListener::from_std(listener) else { return };
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => admit(shared, "local", "unix:".into(), stream).await,
                    Err(_) => sleep(PAUSE).await,
                }
            }
        }
    }
}

async fn admit<I>(shared: &Arc<Shared>, host: &str, peer: String, stream: I)
where
    I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (ticket, is_full) = match shared.connections.admit(host, shared.limits.connections) {
        Admission::Admitted(ticket) => (ticket, false),
        Admission::Replaced(ticket) => (ticket, true),
        Admission::Refused => return count(&shared.refusals.too_many),
    };
    tokio::spawn(connection::serve(Arc::clone(shared), ticket, peer.into(), stream));
    if is_full {
        count(&shared.refusals.too_many);
        // The runtime polls this task ahead of all others. Without a pause a flood is accepted faster than the
        // replaced connections close, and their descriptors pile up.
        tokio::task::yield_now().await;
    }
}

/// As gRPC names peers.
fn peer_name(peer: SocketAddr) -> String {
    match peer {
        SocketAddr::V4(peer) => format!("ipv4:{peer}"),
        SocketAddr::V6(peer) => format!("ipv6:%5B{}%5D:{}", peer.ip(), peer.port()),
    }
}

/// Opens an address: more than one socket if it is a name with several, such as localhost.
fn bind(address: &str) -> io::Result<(Vec<Socketed>, String)> {
    if let Some(name) = address.strip_prefix("unix-abstract:") {
        let listener = StdUnixListener::bind_addr(&UnixAddress::from_abstract_name(name)?)?;
        listener.set_nonblocking(true)?;
        return Ok((vec![Socketed::Unix(listener, None)], address.to_owned()));
    }
    if let Some(path) = address.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        remove_stale(path)?;
        let listener = StdUnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        let file = SocketFile { path: path.into(), inode: std::fs::metadata(path)?.st_ino() };
        return Ok((vec![Socketed::Unix(listener, Some(file))], address.to_owned()));
    }
    let (listeners, port) = bind_tcp(address)?;
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    Ok((listeners.into_iter().map(Socketed::Tcp).collect(), format!("{host}:{port}")))
}

/// A socket in the file system, which goes with its listener unless another one has taken its place.
struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if std::fs::metadata(&self.path).is_ok_and(|found| found.st_ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A socket that a killed process left behind; one that answers is another server's, and other files are not ours.
fn remove_stale(path: &str) -> io::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if is_socket && error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        _ => Ok(()),
    }
}

/// All addresses of a name, on one port. One that this host does not have is left out; one that is taken is not.
fn bind_tcp(address: &str) -> io::Result<(Vec<std::net::TcpListener>, u16)> {
    let mut failure = io::Error::new(io::ErrorKind::AddrNotAvailable, "the name has no address");
    let (mut listeners, mut port) = (Vec::new(), None);
    for mut candidate in address.to_socket_addrs()? {
        candidate.set_port(port.unwrap_or(candidate.port()));
        if candidate.ip().is_unspecified() {
            candidate.set_ip(Ipv6Addr::UNSPECIFIED.into()); // "0.0.0.0" too means all addresses, as in gRPC's library
        }
        match bind_one(candidate).or_else(|error| bind_without_ipv6(candidate, error)) {
            Ok(listener) => {
                port = Some(listener.local_addr()?.port());
                listeners.push(listener);
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
            Err(error) => failure = error,
        }
    }
    port.map(|port| (listeners, port)).ok_or(failure)
}

/// All addresses of a host whose kernel has no IPv6.
fn bind_without_ipv6(address: SocketAddr, error: io::Error) -> io::Result<std::net::TcpListener> {
    if address.ip().is_unspecified() && error.kind() != io::ErrorKind::AddrInUse {
        return bind_one((Ipv4Addr::UNSPECIFIED, address.port()).into());
    }
    Err(error)
}

fn bind_one(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
