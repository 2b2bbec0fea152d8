//! One connection: handshake, HTTP/2, its calls, and the limits that hold for it.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_rustls::TlsAcceptor;

use crate::clock;
use crate::connections::Ticket;
use crate::grpc::{self, Code, Held, Reply, ReplyBody, Status};
use crate::handover::{Answer, Call, Event, Identity, Keeping, Place, Refused};
use crate::metrics::count;
use crate::received::{Received, Watched};
use crate::request_key::request_key;
use crate::shared::{Method, Shared};
use crate::side_services::SideServices;

const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
/// The client's preface and the head of its first frame.
const FIRST_FRAME: u64 = 24 + 9;
/// Refused calls of one connection that make a flood, if they come within `FLOOD_TIME`.
const FLOOD: usize = 20;
const FLOOD_TIME: Duration = Duration::from_secs(2);
/// Streams that a client has reset before they were handled; more end the connection.
const MOST_RESETS: usize = 50;
/// What is read ahead of one stream, and of the connection.
const WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// What a connection without calls gets to end, after it was told to.
const LAST: Duration = Duration::from_secs(1);
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_PATIENCE: Duration = Duration::from_secs(20);

/// Serves a connection to its end.
pub async fn serve<I>(shared: Arc<Shared>, ticket: Ticket, peer: Arc<str>, io: I)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let deadline = Instant::now() + shared.limits.handshake;
    let close = Arc::clone(&ticket.close);
    let Some(tls) = shared.current_tls().await else {
        let identity = Identity { names: "".into(), is_allowed: true };
        return Connection::new(shared, ticket, peer, identity).run(io, deadline).await;
    };
    let secured = async {
        let stream = TlsAcceptor::from(tls).accept(io).await.ok()?;
        let der = stream.get_ref().1.peer_certificates()?.first()?.to_vec();
        Some((stream, shared.identify(&der).await?))
    };
    let secured = tokio::select! {
        secured = timeout_at(deadline, secured) => secured,
        () = close.notified() => return,
        () = shared.stopping() => return,
    };
    match secured {
        Ok(Some((stream, identity))) => {
            Connection::new(shared, ticket, peer, identity).run(stream, deadline).await;
        }
        Ok(None) => {}
        Err(_) => count(&shared.refusals.too_slow),
    }
}

struct Connection {
    shared: Arc<Shared>,
    ticket: Ticket,
    peer: Arc<str>,
    identity: Identity,
    began: Instant,
    received: Arc<Received>,
    /// Calls under way, watches of the health among them.
    open: AtomicUsize,
    /// Those of them that must end soon: until the client has taken their answers.
    open_short: AtomicUsize,
    /// Milliseconds after `began` when a call last began or ended.
    moved: AtomicU64,
    refused: Mutex<(Instant, usize)>,
}

impl Connection {
    fn new(shared: Arc<Shared>, ticket: Ticket, peer: Arc<str>, identity: Identity) -> Arc<Self> {
        let began = Instant::now();
        Arc::new(Self {
            shared,
            ticket,
            peer,
            identity,
            began,
            received: Arc::default(),
            open: AtomicUsize::new(0),
            open_short: AtomicUsize::new(0),
            moved: AtomicU64::new(0),
            refused: Mutex::new((began, 0)),
        })
    }

    async fn run<I>(self: Arc<Self>, io: I, handshake_ends: Instant)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let limits = &self.shared.limits;
        let io = TokioIo::new(Watched::new(io, Arc::clone(&self.received)));
        let this = Arc::clone(&self);
        let serving = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .auto_date_header(false)
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(limits.header_bytes)
            .max_pending_accept_reset_streams(MOST_RESETS)
            .max_local_error_reset_streams(MOST_RESETS)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_PATIENCE)
            .serve_connection(io, service_fn(move |request| Arc::clone(&this).respond(request)));
        tokio::pin!(serving);
        let mut is_ending = false;
        let mut look_at = handshake_ends;
        loop {
            tokio::select! {
                _ = serving.as_mut() => break,
                () = self.ticket.close.notified() => return,
                () = self.shared.stopping(), if !is_ending => {
                    serving.as_mut().graceful_shutdown();
                    is_ending = true;
                    look_at = Instant::now() + LAST;
                }
                () = sleep_until(look_at) => match self.look(Instant::now(), is_ending) {
                    Look::Again(at) => look_at = at,
                    Look::End if is_ending => return,
                    Look::End => {
                        serving.as_mut().graceful_shutdown();
                        is_ending = true;
                        look_at = Instant::now() + LAST;
                    }
                    Look::Cut => return count(&self.shared.refusals.too_slow),
                },
            }
        }
        if self.received.is_flood() {
            count(&self.shared.refusals.flood);
        }
    }

    /// Whether the connection may stay as it is, and when to look again.
    fn look(&self, now: Instant, is_ending: bool) -> Look {
        let limits = &self.shared.limits;
        if self.received.total() < FIRST_FRAME {
            return if is_ending { Look::End } else { Look::Cut };
        }
        let moved = self.began + Duration::from_millis(self.moved.load(Ordering::Relaxed));
        if self.open_short.load(Ordering::Relaxed) > 0 {
            let ends = moved + limits.stall;
            let next = if is_ending { ends.min(now + LAST) } else { ends };
            return if now >= ends { Look::Cut } else { Look::Again(next) };
        }
        if is_ending {
            return Look::End; // a watch of the health would go on for ever
        }
        let ends = moved + limits.idle;
        if self.open.load(Ordering::Relaxed) > 0 {
            return Look::Again(now + limits.stall.min(limits.idle));
        }
        // A call may begin and stall at any time: not later than that it is looked at again.
        if now >= ends { Look::End } else { Look::Again(ends.min(now + limits.stall)) }
    }

    fn moved(&self) {
        let milliseconds = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(milliseconds, Ordering::Relaxed);
        self.received.reset();
    }

    async fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Counting>, std::convert::Infallible> {
        let is_short = !SideServices::has(request.uri().path());
        let open = OpenCall::new(Arc::clone(&self), is_short);
        let Ok(response) = contained(self.answer(request)).await;
        Ok(response.map(|body| Counting { body, _open: open }))
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<ReplyBody> {
        let began = Instant::now();
        if !self.identity.is_allowed {
            return self.refuse(request.uri().path());
        }
        self.ticket.prove();
        if let Err(status) = grpc::check_request(&request) {
            return grpc::refused(status);
        }
        let path = request.uri().path();
        if let Some(method) = self.shared.methods.get(path) {
            return match self.answer_unary(method, request, began).await {
                Ok(message) => grpc::ok(message),
                Err(status) => grpc::failed(&status),
            };
        }
        if let Some(service) = self.shared.side.find(path) {
            if path == HEALTH_CHECK {
                self.shared.wait_for_python("health").await;
                self.shared.side.report().await;
            }
            let request = request.map(tonic::body::Body::new);
            return SideServices::answer(service, request).await.map(ReplyBody::Tonic);
        }
        grpc::failed(&Status::new(Code::Unimplemented, "Method not found!"))
    }

    async fn answer_unary(&self, method: &Method, request: Request<Incoming>, began: Instant) -> Result<Bytes, Status> {
        let shared = &self.shared;
        let timeout = grpc::timeout_of(request.headers())?;
        let traceparent = grpc::traceparent_of(request.headers());
        let patience = timeout.map_or(shared.limits.handshake, |timeout| timeout.min(shared.limits.handshake));
        let mut held = Held::new(&shared.held_bytes);
        let (body, limit) = (request.into_body(), shared.limits.message_bytes);
        let on_data = |length| self.received.forgive(length);
        let message = grpc::read_message(body, limit, patience, &mut held, on_data).await?;
        let mut keeping = None;
        if let Some(key) = request_key(method.key, method.number, &message) {
            match shared.table.find(&key) {
                Ok(reply) => {
                    method.answered.observe(began.elapsed());
                    shared.last_call.store(clock::wall_nanoseconds(), Ordering::Relaxed);
                    return Ok(reply);
                }
                Err(began) => keeping = Some(Keeping { table: Arc::clone(&shared.table), key, began }),
            }
        }
        let Some(place) = Place::take(&shared.open_calls, shared.limits.calls) else {
            return Err(Status::new(Code::ResourceExhausted, "too many calls are under way; try again"));
        };
        let (sender, receiver) = oneshot::channel();
        let mut leaving = Leaving { shared, number: shared.next_number(), is_answered: false };
        shared.outbox.push(Event::Call(Call {
            number: leaving.number,
            method: Arc::clone(&method.name),
            peer: Arc::clone(&self.peer),
            client: Arc::clone(&self.identity.names),
            seconds_left: timeout.map(|timeout| timeout.saturating_sub(began.elapsed()).as_secs_f64()),
            traceparent,
            message,
            held,
            answer: Mutex::new(Some(sender)),
            keeping,
            place,
        }));
        let answer = receiver.await;
        leaving.is_answered = true;
        match answer {
            Ok(Answer::Message(message)) => Ok(message),
            Ok(Answer::Status(status)) => Err(status),
            Err(_) => Err(Status::new(Code::Internal, "the call was dropped: the server's log has the details")),
        }
    }

    /// Before any body is read. A client that goes on is hung up on.
    fn refuse(&self, path: &str) -> Response<ReplyBody> {
        count(&self.shared.refusals.not_allowed);
        let refused = Refused {
            peer: Arc::clone(&self.peer),
            client: Arc::clone(&self.identity.names),
            method: path.chars().take(200).collect(),
        };
        self.shared.outbox.push(Event::Refused(refused));
        let mut flood = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if flood.0.elapsed() > FLOOD_TIME {
            *flood = (Instant::now(), 0);
        }
        flood.1 += 1;
        if flood.1 == FLOOD {
            count(&self.shared.refusals.flood);
            self.ticket.close.notify_one();
        }
        let names = if self.identity.names.is_empty() { "without a name" } else { &self.identity.names };
        grpc::failed(&Status::new(
            Code::PermissionDenied,
            format!("the client certificate ({names}) is not in the server's allowedClients"),
        ))
    }
}

enum Look {
    Again(Instant),
    End,
    Cut,
}

/// The answer of a call; a panic in it is INTERNAL, and the process lives.
async fn contained(answer: impl Future<Output = Response<ReplyBody>>) -> Reply {
    let answer = AssertUnwindSafe(answer).catch_unwind().await;
    let failure = || grpc::failed(&Status::new(Code::Internal, "internal error in the listener"));
    Ok(answer.unwrap_or_else(|_| failure()))
}

/// Tells Python when a caller leaves before its answer.
struct Leaving<'a> {
    shared: &'a Shared,
    number: u64,
    is_answered: bool,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.shared.outbox.push(Event::Cancelled(self.number));
        }
    }
}

/// A call that is under way until its answer has been taken.
struct OpenCall {
    connection: Arc<Connection>,
    is_short: bool,
}

impl OpenCall {
    fn new(connection: Arc<Connection>, is_short: bool) -> Self {
        connection.open.fetch_add(1, Ordering::Relaxed);
        connection.open_short.fetch_add(usize::from(is_short), Ordering::Relaxed);
        connection.moved();
        Self { connection, is_short }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.connection.open.fetch_sub(1, Ordering::Relaxed);
        self.connection.open_short.fetch_sub(usize::from(self.is_short), Ordering::Relaxed);
        self.connection.moved();
    }
}

/// A body whose call is under way until it is sent or dropped.
struct Counting {
    body: ReplyBody,
    _open: OpenCall,
}

impl Body for Counting {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_internal_error() {
        let Ok(response) = contained(async { panic!("on purpose") }).await;
        assert_eq!(response.headers()["grpc-status"], "13");
    }
}
