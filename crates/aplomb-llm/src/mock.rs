//! A provider without a network: plays a script as the bytes and faults that a network would bring, so that the real
//! codecs, clocks and decisions are at work.

use std::collections::VecDeque;
use std::time::Duration;

use aplomb_core::error::{Error, codes};
use aplomb_core::failure::{TransportFault, TransportKind};
use aplomb_faultlab::script::{self, Answer, End, Engine, Part, Plan, Script};
use bytes::Bytes;
use futures_util::future::pending;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::clocks::{pause, wall_ms};
use crate::transport::{Body, Paths, Pool, Request, Response, Sent, Transport};

/// Plays a script. Every run goes through it from the beginning.
#[derive(Debug)]
pub struct MockTransport {
    engine: Engine,
    paths: Paths,
}

impl MockTransport {
    /// A transport that plays the script.
    ///
    /// # Errors
    ///
    /// `config.validation` if the script cannot be played; the message names the place.
    pub fn new(script: Script, paths: Paths) -> Result<MockTransport, Error> {
        let engine = Engine::new(script).map_err(|error| {
            Error::new(codes::CONFIG_VALIDATION, format!("llm.script: {error}")).with_foreign_cause(error)
        })?;
        Ok(MockTransport { engine, paths })
    }
}

impl Transport for MockTransport {
    fn send(&self, request: Request) -> Sent<'_> {
        let response = Box::pin(async move {
            let path = if request.stream { &self.paths.streamed } else { &self.paths.whole };
            let asked =
                script::Request::new(path.as_ref(), request.body).at(Duration::from_millis(wall_ms()));
            let Plan { delay, answer, .. } = self.engine.plan(&request.run_id, &asked);
            if !delay.is_zero() {
                pause(delay).await;
            }
            match answer {
                Answer::Reset => Err(reset()),
                Answer::Close => {
                    Err(closed(TransportKind::Closed, "connection closed before message completed"))
                }
                Answer::Silence => pending().await,
                Answer::Response(response) => Ok(play(response)),
            }
        });
        Sent { pool: Pool::default(), response }
    }
}

fn reset() -> TransportFault {
    TransportFault { kind: TransportKind::Reset, text: "connection reset by peer".to_owned() }
}

fn closed(kind: TransportKind, text: &str) -> TransportFault {
    TransportFault { kind, text: text.to_owned() }
}

fn play(response: script::Response) -> Response {
    let headers = response.headers.iter().filter_map(|(name, value)| {
        Some((HeaderName::try_from(name).ok()?, HeaderValue::from_str(value).ok()?))
    });
    let headers: HeaderMap = headers.collect();
    Response { status: response.status, headers, body: body(response.parts.into(), response.end) }
}

fn body(parts: VecDeque<Part>, end: End) -> Body {
    stream::unfold((parts, Some(end)), |(mut parts, end)| async move {
        loop {
            match parts.pop_front() {
                Some(Part::Bytes(bytes)) => return Some((Ok(bytes), (parts, end))),
                Some(Part::Pause(time)) => pause(time).await,
                None => break,
            }
        }
        let (item, end) = match end? {
            End::Clean => return None,
            End::Fin => {
                (Err(closed(TransportKind::CutBody, "end of file before message length reached")), None)
            }
            End::Reset => (Err(reset()), None),
            End::Silence => pending().await,
            End::Repeat { bytes, every } => repeat(bytes, every).await,
        };
        Some((item, (parts, end)))
    })
    .boxed()
}

async fn repeat(bytes: Bytes, every: Duration) -> (Result<Bytes, TransportFault>, Option<End>) {
    pause(every).await;
    (Ok(bytes.clone()), Some(End::Repeat { bytes, every }))
}
