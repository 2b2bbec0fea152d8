//! gRPC on HTTP/2: the framing of unary calls, status and deadlines.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};

/// gRPC's status codes, as far as this listener sends them by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
}

/// How a call ends without a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub code: i32,
    pub message: String,
    pub metadata: Vec<(String, String)>,
}

impl Status {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code: code as i32, message: message.into(), metadata: Vec::new() }
    }
}

const PREFIX: usize = 5;
/// Frames without data that one message may come with.
const MOST_EMPTY_FRAMES: usize = 32;
/// Characters; W3C's header has 55 of them, and later versions may have more.
const LONGEST_TRACEPARENT: usize = 256;
/// Bytes of the messages of all calls together: those of an autoscaler have a few kilobytes each.
const MOST_HELD: usize = 64 * 1024 * 1024;

/// What one call's message takes of the room for all messages, until it is dropped.
pub struct Held {
    all: Arc<AtomicUsize>,
    mine: usize,
}

impl Held {
    pub fn new(all: &Arc<AtomicUsize>) -> Self {
        Self { all: Arc::clone(all), mine: 0 }
    }

    fn grow(&mut self, more: usize) -> Result<(), Status> {
        self.mine += more;
        if self.all.fetch_add(more, Ordering::Relaxed) + more > MOST_HELD {
            return Err(Status::new(Code::ResourceExhausted, "the messages of all calls take too much memory"));
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.mine, Ordering::Relaxed);
    }
}

/// A message as it goes over the wire.
pub fn framed(message: &[u8]) -> Bytes {
    let mut data = BytesMut::with_capacity(PREFIX + message.len());
    data.put_u8(0);
    data.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    data.put_slice(message);
    data.freeze()
}

/// Reads the one message of a unary call, in the time that a client has to send it. `on_data` is told of each piece.
pub async fn read_message<B>(
    body: B,
    limit: usize,
    patience: Duration,
    held: &mut Held,
    on_data: impl Fn(usize),
) -> Result<Bytes, Status>
where
    B: Body<Data = Bytes> + Unpin,
{
    match tokio::time::timeout(patience, read_all(body, limit, held, on_data)).await {
        Ok(result) => result.and_then(|data| only_message(&data, limit)),
        Err(_) => Err(Status::new(Code::DeadlineExceeded, "the message of the call did not arrive in time")),
    }
}

async fn read_all<B>(mut body: B, limit: usize, held: &mut Held, on_data: impl Fn(usize)) -> Result<Bytes, Status>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut empty = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return Err(Status::new(Code::Unavailable, "the call was cut off"));
        };
        let Ok(data) = frame.into_data() else { continue };
        on_data(data.len());
        held.grow(data.len())?;
        if data.is_empty() {
            empty += 1;
            if empty > MOST_EMPTY_FRAMES {
                return Err(Status::new(Code::ResourceExhausted, "too many frames without data"));
            }
        } else if first.is_empty() {
            first = data; // nearly always the only one
        } else {
            if rest.is_empty() {
                rest.put_slice(&first);
            }
            rest.put_slice(&data);
        }
        if first.len().max(rest.len()) > PREFIX + limit {
            return Err(too_large(limit));
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

fn only_message(data: &Bytes, limit: usize) -> Result<Bytes, Status> {
    let Some((prefix, _)) = data.split_first_chunk::<PREFIX>() else {
        return Err(Status::new(Code::InvalidArgument, "the call ended without a message"));
    };
    let [flag, a, b, c, d] = *prefix;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if flag != 0 {
        return Err(Status::new(Code::Unimplemented, "compressed messages are not supported: send them as they are"));
    }
    if length > limit {
        return Err(too_large(limit));
    }
    if data.len() != PREFIX + length {
        return Err(Status::new(Code::InvalidArgument, "a unary call has exactly one message"));
    }
    Ok(data.slice(PREFIX..))
}

fn too_large(limit: usize) -> Status {
    Status::new(Code::ResourceExhausted, format!("the message is larger than {limit} bytes"))
}

/// Whether a request is one of gRPC at all; the HTTP status of the refusal if not.
pub fn check_request<B>(request: &Request<B>) -> Result<(), http::StatusCode> {
    if request.method() != http::Method::POST {
        return Err(http::StatusCode::METHOD_NOT_ALLOWED);
    }
    match request.headers().get(CONTENT_TYPE) {
        Some(kind) if kind.as_bytes().starts_with(b"application/grpc") => Ok(()),
        _ => Err(http::StatusCode::UNSUPPORTED_MEDIA_TYPE),
    }
}

/// What `grpc-timeout` says; `None` without one. One that cannot be read is an error of the client.
pub fn timeout_of(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get("grpc-timeout") else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(parse_timeout);
    parsed.map(Some).ok_or_else(|| Status::new(Code::Internal, "the grpc-timeout cannot be read"))
}

/// The caller's `traceparent`, for Python to read; empty without one, and for one that is no header of W3C's by its size.
pub fn traceparent_of(headers: &HeaderMap) -> Box<str> {
    let value = headers.get("traceparent").and_then(|value| value.to_str().ok());
    value.filter(|value| value.len() <= LONGEST_TRACEPARENT).unwrap_or_default().into()
}

fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

/// The body of an answer: a message and its trailers, nothing, or what tonic has made.
pub enum ReplyBody {
    Message(Option<Bytes>),
    Trailers,
    Empty,
    Tonic(tonic::body::Body),
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        match &mut *self {
            Self::Message(message) => {
                let message = message.take().unwrap_or_default();
                *self = Self::Trailers;
                Poll::Ready(Some(Ok(Frame::data(message))))
            }
            Self::Trailers => {
                *self = Self::Empty;
                let trailers = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]);
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            Self::Empty => Poll::Ready(None),
            Self::Tonic(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Message(_) | Self::Trailers => false,
            Self::Empty => true,
            Self::Tonic(body) => body.is_end_stream(),
        }
    }
}

pub type Reply = Result<Response<ReplyBody>, Infallible>;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// A message, ready to be sent, with status OK.
pub fn ok(message: Bytes) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::Message(Some(message)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// A call's end in an error, in one header frame.
pub fn failed(status: &Status) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::Empty);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(GRPC_STATUS, HeaderValue::from(status.code));
    if let Ok(message) = HeaderValue::from_str(&percent_encoded(&status.message)) {
        headers.insert(GRPC_MESSAGE, message);
    }
    for (name, value) in &status.metadata {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    }
    response
}

/// An answer to what is no gRPC call.
pub fn refused(status: http::StatusCode) -> Response<ReplyBody> {
    let text = Full::from("only gRPC is served here\n");
    let mut response = Response::new(ReplyBody::Tonic(tonic::body::Body::new(text)));
    *response.status_mut() = status;
    response
}

/// As gRPC writes messages into a header: everything but printable ASCII, and the percent sign, as %XX.
fn percent_encoded(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for byte in message.bytes() {
        if (b' '..=b'~').contains(&byte) && byte != b'%' {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::StreamBody;

    async fn read(data: &[u8], limit: usize) -> Result<Bytes, Status> {
        read_body(Full::new(Bytes::copy_from_slice(data)), limit).await
    }

    async fn read_body<B: Body<Data = Bytes> + Unpin>(body: B, limit: usize) -> Result<Bytes, Status> {
        let mut held = Held::new(&Arc::default());
        read_message(body, limit, Duration::from_secs(5), &mut held, |_| {}).await
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(future)
    }

    #[test]
    fn a_message_comes_out_as_it_went_in() {
        run(async {
            assert_eq!(read(&framed(b"abc"), 3).await, Ok(Bytes::from_static(b"abc")));
            assert_eq!(read(&framed(b""), 3).await, Ok(Bytes::new()));
        });
    }

    #[test]
    fn messages_in_pieces_are_joined() {
        run(async {
            let pieces = framed(b"hello").chunks(2).map(Bytes::copy_from_slice).collect::<Vec<_>>();
            let frames = pieces.into_iter().map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
            let body = StreamBody::new(Iter(frames));
            assert_eq!(read_body(body, 5).await, Ok(Bytes::from_static(b"hello")));
        });
    }

    struct Iter<I>(I);

    impl<I: Iterator + Unpin> futures_core::Stream for Iter<I> {
        type Item = I::Item;
        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<I::Item>> {
            Poll::Ready(self.0.next())
        }
    }

    #[test]
    fn frames_without_data_are_bounded() {
        run(async {
            let frames = std::iter::repeat_with(|| Ok::<_, Infallible>(Frame::data(Bytes::new())));
            let body = StreamBody::new(Iter(frames));
            let status = read_body(body, 5).await.expect_err("refused");
            assert_eq!(status.code, Code::ResourceExhausted as i32);
        });
    }

    #[test]
    fn messages_of_all_calls_are_bounded_together() {
        let all = Arc::default();
        let (mut first, mut second) = (Held::new(&all), Held::new(&all));
        assert_eq!(first.grow(MOST_HELD), Ok(()));
        assert!(second.grow(1).is_err());
        drop((first, second));
        assert_eq!(Held::new(&all).grow(MOST_HELD), Ok(()));
    }

    #[test]
    fn what_is_not_one_message_is_refused() {
        run(async {
            let code = async |data: &[u8]| read(data, 10).await.expect_err("refused").code;
            assert_eq!(code(b"").await, Code::InvalidArgument as i32);
            assert_eq!(code(&framed(b"abc")[..7]).await, Code::InvalidArgument as i32);
            assert_eq!(code(&[framed(b"a"), framed(b"b")].concat()).await, Code::InvalidArgument as i32);
            assert_eq!(code(&framed(b"12345678901")).await, Code::ResourceExhausted as i32);
            assert_eq!(code(b"\x01\0\0\0\x01a").await, Code::Unimplemented as i32);
        });
    }

    #[test]
    fn timeouts_are_read_as_grpc_writes_them() {
        assert_eq!(parse_timeout("5S"), Some(Duration::from_secs(5)));
        assert_eq!(parse_timeout("4999m"), Some(Duration::from_millis(4999)));
        assert_eq!(parse_timeout("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        for wrong in ["", "S", "5", "5s", "123456789S", "-1S", "ä"] {
            assert_eq!(parse_timeout(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_traceparent_is_passed_unless_it_is_huge() {
        let mut headers = HeaderMap::new();
        assert_eq!(&*traceparent_of(&headers), "");
        let value = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        headers.insert("traceparent", HeaderValue::from_static(value));
        assert_eq!(&*traceparent_of(&headers), value);
        headers.insert("traceparent", HeaderValue::from_str(&"0".repeat(257)).expect("a header"));
        assert_eq!(&*traceparent_of(&headers), "");
    }

    #[test]
    fn messages_are_encoded_for_a_header() {
        assert_eq!(percent_encoded("50 % of \"ä\"\n"), "50 %25 of \"%C3%A4\"%0A");
    }
}
