//! Converses with one client over HTTP/1.1: reads its requests, has them logged and planned, and plays the plans.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::connection::{Connection, Length, NoRequest, head};
use super::state::{Origin, State};
use crate::script::{Answer, End, Framing, Head, Part, Plan, Raw, Response};

/// What becomes of the connection after an answer.
enum After {
    NextRequest,
    Close,
    Reset,
    Silence,
}

/// Serves the connection until one side has had enough of it.
pub(super) async fn converse(mut connection: Connection, number: u64, state: Arc<State>) {
    let origin = Origin { connection: number, http: "1.1" };
    let after = loop {
        match exchange(&mut connection, origin, &state).await {
            Ok(After::NextRequest) => {}
            Ok(after) => break after,
            Err(NoRequest::Gone) => return,
            Err(NoRequest::Refused { status, message }) => {
                if connection.write_error(status, &message).await.is_err() {
                    return;
                }
                break After::Close;
            }
        }
    };
    match after {
        After::NextRequest | After::Close => connection.close().await,
        After::Reset => connection.reset().await,
        After::Silence => connection.wait_for_client_to_leave().await,
    }
}

/// One request and its answer.
async fn exchange(connection: &mut Connection, origin: Origin, state: &State) -> Result<After, NoRequest> {
    let head = connection.read_head().await?;
    let ticket = state.begin(&head, origin);
    let body = connection.read_body(&head).await?;
    let Plan { delay, answer, .. } = state.plan(&ticket, &head.target, body);
    pause(delay.saturating_sub(lead(&answer))).await;
    let after = match answer {
        Answer::Reset => After::Reset,
        Answer::Close => After::Close,
        Answer::Silence => After::Silence,
        Answer::Response(response) => respond(connection, response).await?,
    };
    Ok(match after {
        After::NextRequest if head.asks_to_close() => After::Close,
        after => after,
    })
}

/// How much of the delay falls between the status line and the rest of the head.
fn lead(answer: &Answer) -> Duration {
    match answer {
        Answer::Response(Response { raw: Raw { head: Head::StatusLineFirst { lead }, .. }, .. }) => *lead,
        _ => Duration::ZERO,
    }
}

/// Waits, if there is anything to wait for.
pub(super) async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

async fn respond(connection: &mut Connection, response: Response) -> io::Result<After> {
    let Response { status, headers, framing, parts, end, raw } = response;
    let length = match framing {
        Framing::Chunked => Length::Chunked,
        // RFC 9110, section 8.6: a 204 has no content-length, and a 304 none that would be the body's.
        Framing::Length(_) if matches!(status, 204 | 304) => Length::None,
        Framing::Length(length) => Length::Bytes(length),
    };
    write_head(connection, &head(status, &headers, length), raw.head).await?;
    for part in parts {
        match part {
            Part::Bytes(bytes) => write(connection, framing, &bytes).await?,
            Part::Pause(time) => pause(time).await,
        }
    }
    if !raw.tail.is_empty() {
        connection.write(&raw.tail).await?;
    }
    let closes =
        |(name, value): &(String, String)| name == "connection" && value.eq_ignore_ascii_case("close");
    match end {
        End::Clean => {
            if framing == Framing::Chunked {
                connection.write_last_chunk().await?;
            }
            Ok(if headers.iter().any(closes) { After::Close } else { After::NextRequest })
        }
        End::Fin => Ok(After::Close),
        End::Reset => Ok(After::Reset),
        End::Silence => Ok(After::Silence),
        End::Repeat { bytes, every } => loop {
            // Ends when a write fails: then the client has left.
            tokio::time::sleep(every).await;
            write(connection, framing, &bytes).await?;
        },
    }
}

async fn write_head(connection: &mut Connection, head: &str, way: Head) -> io::Result<()> {
    match way {
        Head::AtOnce => connection.write(head.as_bytes()).await,
        Head::StatusLineFirst { lead } => {
            let (status_line, rest) = head.split_once("\r\n").unwrap_or((head, ""));
            connection.write(format!("{status_line}\r\n").as_bytes()).await?;
            pause(lead).await;
            connection.write(rest.as_bytes()).await
        }
        Head::Pieces { bytes, every } => {
            for piece in head.as_bytes().chunks(bytes.max(1)) {
                connection.write(piece).await?;
                pause(every).await;
            }
            Ok(())
        }
    }
}

async fn write(connection: &mut Connection, framing: Framing, bytes: &[u8]) -> io::Result<()> {
    match framing {
        Framing::Chunked => connection.write_chunk(bytes).await,
        Framing::Length(_) => connection.write(bytes).await,
    }
}
