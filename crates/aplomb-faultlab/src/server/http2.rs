//! Converses with one client over HTTP/2: has its requests logged and planned, each on its stream, and plays
//! the plans. Frames and flow control are the `h2` crate's; how connections end is decided here.
//!
//! Section numbers are of RFC 9113 (HTTP/2) if nothing else is said.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::task::{AbortHandle, JoinSet};

use super::connection::{Connection, Head, MAX_BODY};
use super::frames::Frames;
use super::play::pause;
use super::state::{Origin, State, Ticket};
use crate::script::{Answer, End, Framing, Http2Code, Http2Fault, Part, Plan, Response};

/// As the server's side of a connection, over whatever carries its frames.
type Http2 = h2::server::Connection<Frames, Bytes>;

/// What becomes of the connection.
enum After {
    Close,
    Reset,
    /// The client has left.
    Gone,
}

/// What a stream has come to, with what can still be said on it. What is dropped without its end is reset by
/// the library.
struct Ended {
    respond: SendResponse<Bytes>,
    body: Option<SendStream<Bytes>>,
    how: How,
}

enum How {
    /// It is over, by either side.
    Over,
    /// The request is to be called not processed.
    GoAwayBefore,
    /// The answer is to come after a GOAWAY.
    GoAwayGraceful(Box<Response>),
    GoAwayAbrupt(Http2Code),
    /// To be reset when what was sent is on its way.
    ResetStream(Http2Code),
    CloseConnection,
    ResetConnection,
}

/// Serves the connection until one side has had enough of it.
pub(super) async fn converse(connection: Connection, number: u64, state: Arc<State>) {
    let frames = Frames::new(connection);
    let after = match h2::server::handshake(frames.clone()).await {
        Ok(mut http2) => serve(&mut http2, &frames, number, &state).await,
        Err(_) => After::Close,
    };
    let Some(connection) = frames.into_connection() else { return };
    match after {
        After::Close => connection.close().await,
        After::Reset => connection.reset().await,
        After::Gone => {}
    }
}

async fn serve(http2: &mut Http2, frames: &Frames, number: u64, state: &Arc<State>) -> After {
    let mut served =
        Served { frames, streams: JoinSet::new(), known: Vec::new(), highest: 0, held: Vec::new() };
    loop {
        tokio::select! {
            accepted = http2.accept() => match accepted {
                Some(Ok((_, mut respond))) if frames.is_going_away() => {
                    respond.send_reset(Reason::REFUSED_STREAM);
                }
                Some(Ok((request, respond))) => {
                    served.begin(request, respond, Origin { connection: number, http: "2" }, state);
                }
                Some(Err(_)) | None => return After::Gone,
            },
            Some(ended) = served.streams.join_next() => {
                // An aborted stream has nothing to say.
                if let Ok(ended) = ended
                    && let Some(after) = served.end(http2, ended).await
                {
                    return after;
                }
                if frames.is_going_away() && served.streams.is_empty() {
                    flush(http2, frames).await;
                    return After::Close;
                }
            }
        }
    }
}

/// The streams of a connection.
struct Served<'a> {
    frames: &'a Frames,
    streams: JoinSet<Ended>,
    /// Each stream that was accepted, with its task.
    known: Vec<(u32, AbortHandle)>,
    highest: u32,
    /// What must not be dropped before the connection is, as the client is to hear nothing of it.
    held: Vec<Ended>,
}

impl Served<'_> {
    /// Logs a request whose head has arrived, and has it answered.
    fn begin(
        &mut self,
        request: http::Request<RecvStream>,
        respond: SendResponse<Bytes>,
        origin: Origin,
        state: &Arc<State>,
    ) {
        let (parts, body) = request.into_parts();
        let head = head_of(parts);
        let ticket = state.begin(&head, origin);
        let id = respond.stream_id().as_u32();
        self.highest = self.highest.max(id);
        self.spawn(id, exchange(head.target, ticket, body, respond, Arc::clone(state)));
    }

    fn spawn(&mut self, id: u32, stream: impl Future<Output = Ended> + Send + 'static) {
        self.known.retain(|(_, task)| !task.is_finished());
        self.known.push((id, self.streams.spawn(stream)));
    }

    /// Does what a stream's end asks of the connection; says what becomes of it, if that is its end, too.
    async fn end(&mut self, http2: &mut Http2, mut ended: Ended) -> Option<After> {
        let no_error = Http2Code::NoError.number();
        let id = ended.respond.stream_id().as_u32();
        match ended.how {
            How::Over => {}
            How::GoAwayBefore => {
                // Streams of clients have odd numbers (section 5.1.1); 0 says that there was none.
                self.frames.go_away(id.saturating_sub(2), no_error);
                self.known.iter().filter(|(other, _)| *other > id).for_each(|(_, task)| task.abort());
                self.held.push(Ended { how: How::Over, ..ended });
            }
            How::GoAwayGraceful(response) => {
                self.frames.go_away(self.highest, no_error);
                self.spawn(id, answer(ended.respond, *response, None));
            }
            How::GoAwayAbrupt(code) => {
                self.frames.go_away(self.highest, code.number());
                flush(http2, self.frames).await;
                self.held.push(Ended { how: How::Over, ..ended });
                return Some(After::Close);
            }
            How::ResetStream(code) => {
                flush(http2, self.frames).await;
                let reason = Reason::from(code.number());
                match &mut ended.body {
                    Some(body) => body.send_reset(reason),
                    None => ended.respond.send_reset(reason),
                }
            }
            How::CloseConnection => {
                flush(http2, self.frames).await;
                return Some(After::Close);
            }
            How::ResetConnection => {
                flush(http2, self.frames).await;
                return Some(After::Reset);
            }
        }
        None
    }
}

/// Drives the connection until everything that was said on its streams is with the kernel, or there is no
/// connection any more.
async fn flush(http2: &mut Http2, frames: &Frames) {
    poll_fn(|cx| match http2.poll_closed(cx) {
        Poll::Pending if !frames.is_flushed() => Poll::Pending,
        Poll::Pending | Poll::Ready(_) => Poll::Ready(()),
    })
    .await;
}

/// The head as HTTP/1.1 would have it (section 8.3.1).
fn head_of(parts: http::request::Parts) -> Head {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let mut headers: Vec<(String, String)> =
        parts.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
    if let Some(authority) = parts.uri.authority()
        && !parts.headers.contains_key(HOST)
    {
        headers.push((HOST.as_str().to_owned(), authority.as_str().to_owned()));
    }
    let target = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    Head { method: parts.method.as_str().to_owned(), target, headers }
}

/// One request, whose head is logged, and its answer.
async fn exchange(
    target: String,
    ticket: Ticket,
    body: RecvStream,
    respond: SendResponse<Bytes>,
    state: Arc<State>,
) -> Ended {
    let body = match read(body).await {
        Ok(Some(body)) => body,
        Ok(None) => return answer(respond, too_large(), None).await,
        Err(_) => return Ended { respond, body: None, how: How::Over },
    };
    let Plan { delay, answer: planned, http2, .. } = state.plan(&ticket, &target, body);
    pause(delay).await;
    let ended = |respond, how| Ended { respond, body: None, how };
    match (http2, planned) {
        (Some(Http2Fault::GoAwayBefore), _) => ended(respond, How::GoAwayBefore),
        (Some(Http2Fault::GoAwayAbrupt { code }), _) => ended(respond, How::GoAwayAbrupt(code)),
        (Some(Http2Fault::GoAwayGraceful), Answer::Response(response)) => {
            ended(respond, How::GoAwayGraceful(Box::new(response)))
        }
        (Some(Http2Fault::RefusedStream), _) => ended(respond, How::ResetStream(Http2Code::RefusedStream)),
        (Some(Http2Fault::ResetStream { code, after_events: Some(_) }), Answer::Response(response)) => {
            answer(respond, response, Some(code)).await
        }
        (Some(Http2Fault::ResetStream { code, .. }), _) => ended(respond, How::ResetStream(code)),
        (_, Answer::Reset) => ended(respond, How::ResetConnection),
        (_, Answer::Close) => ended(respond, How::CloseConnection),
        (_, Answer::Silence) => {
            let mut respond = respond;
            // The client resets the stream, or leaves and takes the connection with it.
            let _ = poll_fn(|cx| respond.poll_reset(cx)).await;
            ended(respond, How::Over)
        }
        (_, Answer::Response(response)) => answer(respond, response, None).await,
    }
}

/// The request's body; `None` if it is too large.
async fn read(mut stream: RecvStream) -> Result<Option<Bytes>, h2::Error> {
    let mut body = BytesMut::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        stream.flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
        if u64::try_from(body.len()).is_ok_and(|length| length > MAX_BODY) {
            return Ok(None);
        }
    }
    Ok(Some(body.freeze()))
}

fn too_large() -> Response {
    let message = format!("The body has more than {MAX_BODY} bytes.");
    let body = serde_json::json!({ "error": { "message": message } }).to_string();
    Response {
        status: 413,
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        framing: Framing::Length(u64::try_from(body.len()).unwrap_or(u64::MAX)),
        parts: vec![Part::Bytes(body.into())],
        end: End::Clean,
        raw: crate::script::Raw::default(),
    }
}

/// Plays a response. Where it ends by a reset, that is the stream's with the code `reset`, if there is one,
/// and else the connection's.
async fn answer(mut respond: SendResponse<Bytes>, response: Response, reset: Option<Http2Code>) -> Ended {
    let Response { status, headers, framing, parts, end, .. } = response;
    let mut head = http::Response::new(());
    *head.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    *head.headers_mut() = header_map(status, &headers, framing);
    let is_whole = parts.is_empty() && end == End::Clean;
    let mut body = match respond.send_response(head, is_whole) {
        Ok(body) if !is_whole => body,
        _ => return Ended { respond, body: None, how: How::Over },
    };
    let how = match play(&mut body, parts, end).await {
        Ok(End::Fin) => How::CloseConnection,
        Ok(End::Reset) => reset.map_or(How::ResetConnection, How::ResetStream),
        // A client that has reset the stream is not there to be answered.
        Ok(End::Clean | End::Silence | End::Repeat { .. }) | Err(_) => How::Over,
    };
    Ended { respond, body: Some(body), how }
}

/// The body to the end that is its own; the ends of connections are left to the caller.
async fn play(body: &mut SendStream<Bytes>, parts: Vec<Part>, end: End) -> Result<End, h2::Error> {
    for part in parts {
        match part {
            Part::Bytes(bytes) => send(body, bytes).await?,
            Part::Pause(time) => pause(time).await,
        }
    }
    match &end {
        End::Clean => body.send_data(Bytes::new(), true)?,
        End::Fin | End::Reset => {}
        End::Silence => {
            poll_fn(|cx| body.poll_reset(cx)).await?;
        }
        End::Repeat { bytes, every } => loop {
            // Ends when a write fails: then the client has left.
            tokio::time::sleep(*every).await;
            send(body, bytes.clone()).await?;
        },
    }
    Ok(end)
}

/// Sends bytes as DATA of their own, as soon as the client has room for them (section 5.2).
async fn send(body: &mut SendStream<Bytes>, mut bytes: Bytes) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        body.reserve_capacity(bytes.len());
        let room = match body.capacity() {
            0 => match poll_fn(|cx| body.poll_capacity(cx)).await {
                Some(room) => room?,
                None => return Err(Reason::STREAM_CLOSED.into()),
            },
            room => room,
        };
        if room > 0 {
            body.send_data(bytes.split_to(room.min(bytes.len())), false)?;
        }
    }
    Ok(())
}

/// The headers without those of HTTP/1.1's connections, which have no place here (section 8.2.2).
fn header_map(status: u16, headers: &[(String, String)], framing: Framing) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        // Scripts are checked for names and values that HTTP does not allow.
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes()))
            && !is_of_connections(&name)
        {
            map.append(name, value);
        }
    }
    match framing {
        Framing::Length(length) if !matches!(status, 204 | 304) => {
            map.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        Framing::Length(_) | Framing::Chunked => {}
    }
    map
}

fn is_of_connections(name: &HeaderName) -> bool {
    [CONNECTION, TRANSFER_ENCODING, UPGRADE].contains(name)
        || ["keep-alive", "proxy-connection"].contains(&name.as_str())
}
