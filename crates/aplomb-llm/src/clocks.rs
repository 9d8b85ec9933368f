//! The clocks of one attempt. The only place here that measures time; time limits are real time, never scaled.
#![expect(clippy::disallowed_methods, reason = "the transport's clocks are made here")]

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aplomb_core::failure::{Failure, Phase, TransportKind};
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

/// `llm.timeouts`: how long an attempt may take, and how long it may do nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// To the connection, TLS included.
    pub connect: Duration,
    /// To the answer's first byte; to its last where it is not streamed.
    pub first_byte: Duration,
    /// Between two pieces of a streamed answer. Comments and pings are none.
    pub idle: Duration,
    /// For the whole attempt.
    pub attempt: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            attempt: None,
        }
    }
}

/// How long to wait, after the answer is whole, for the counts that may follow it.
const TRAILER_GRACE: Duration = Duration::from_secs(2);

/// How long to wait, after the stream has said that nothing follows, for its end. A new connection takes longer.
const END_GRACE: Duration = Duration::from_millis(10);

/// The clocks of one attempt, running since its start.
#[derive(Debug)]
pub(crate) struct Clocks {
    started: Instant,
    attempt: Option<Instant>,
    /// The clock that runs now.
    limit: Instant,
    kind: TransportKind,
    idle: Duration,
    /// Goes off by the limit, or before.
    alarm: Pin<Box<Sleep>>,
}

impl Clocks {
    pub(crate) fn start(timeouts: &Timeouts) -> Clocks {
        let started = Instant::now();
        let limit = started + timeouts.first_byte;
        Clocks {
            started,
            attempt: timeouts.attempt.map(|attempt| started + attempt),
            limit,
            kind: TransportKind::FirstByteTimeout,
            idle: timeouts.idle,
            alarm: Box::pin(sleep_until(limit)),
        }
    }

    /// The model has made progress: from here on the idle clock runs.
    pub(crate) fn progress(&mut self) {
        self.limit = Instant::now() + self.idle;
        self.kind = TransportKind::IdleTimeout;
    }

    /// The answer is whole: what may follow is waited for, but not for long.
    pub(crate) fn answer_is_whole(&mut self) {
        self.limit = Instant::now() + self.idle.min(TRAILER_GRACE);
        self.kind = TransportKind::IdleTimeout;
    }

    /// Waits for `step`, at most as long as the clocks allow. What is there when they run out still counts; where it was no
    /// progress, there is no waiting for more, however soon that comes.
    pub(crate) async fn wait<T>(&mut self, step: impl Future<Output = T>) -> Result<T, TransportKind> {
        let (limit, kind) = match self.attempt {
            Some(attempt) if attempt < self.limit => (attempt, TransportKind::AttemptTimeout),
            _ => (self.limit, self.kind),
        };
        if Instant::now() >= limit {
            return Err(kind);
        }
        let mut step = pin!(step);
        let step_by_the_limit = poll_fn(|context| {
            if let Poll::Ready(done) = step.as_mut().poll(context) {
                return Poll::Ready(Ok(done));
            }
            if self.alarm.deadline() > limit {
                self.alarm.as_mut().reset(limit);
            }
            // Each piece of an answer moves the limit. To set the alarm anew when it goes off too early costs less than
            // to set it anew with each piece.
            while self.alarm.as_mut().poll(context).is_ready() {
                if self.alarm.deadline() >= limit {
                    return Poll::Ready(Err(kind));
                }
                self.alarm.as_mut().reset(limit);
            }
            Poll::Pending
        });
        step_by_the_limit.await
    }

    /// Waits a moment for the end of a body that is done.
    pub(crate) async fn wait_for_end<T>(&self, end: impl Future<Output = T>) {
        let _did_not_come = timeout_at(Instant::now() + END_GRACE, end).await;
    }

    /// Since the attempt's start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Since the attempt's start, in ms.
    pub(crate) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Wall time, in ms of Unix time.
pub(crate) fn wall_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

/// A scripted pause of the mock, which plays a network and so takes a network's real time.
pub(crate) async fn pause(pause: Duration) {
    tokio::time::sleep(pause).await;
}

pub(crate) fn timed_out(phase: Phase, limit: TransportKind) -> Box<Failure> {
    let text = limit.setting().map(|setting| format!("timed out ({setting})")).unwrap_or_default();
    Box::new(Failure::transport(phase, limit, &text))
}
