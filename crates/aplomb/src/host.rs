//! Clock, sleep and entropy: what a run is given instead of taking it. The only place that has any of its own.
#![expect(clippy::disallowed_methods, reason = "clock, sleep and entropy are made here")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;

/// Where runs get time and entropy from.
pub trait Host: Send + Sync + 'static {
    /// A clock that never runs backwards.
    fn now(&self) -> Instant;

    /// Wall time, in ms of Unix time.
    fn wall_ms(&self) -> u64;

    /// A draw, for spreading waits and for naming runs; not for secrets.
    fn entropy(&self) -> u64;

    /// Waits.
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()>;

    /// How much of an ordered wait is really slept, 1 being all of it. The run's clock shows the whole wait all the
    /// same.
    fn wait_scale(&self) -> f64 {
        1.0
    }
}

/// The machine's own clock, sleep and entropy.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemHost;

impl Host for SystemHost {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall_ms(&self) -> u64 {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
    }

    fn entropy(&self) -> u64 {
        fastrand::u64(..)
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

/// Like [`SystemHost`], but sleeps only a part of each ordered wait, so that tests over real sockets need not wait for
/// back-offs. Time limits are not scaled.
#[derive(Debug, Clone, Copy)]
pub struct ScaledHost {
    scale: f64,
}

impl ScaledHost {
    /// With 0.01, two seconds of back-off are slept in 20 ms.
    pub fn new(scale: f64) -> ScaledHost {
        ScaledHost { scale: scale.clamp(0.0, 1.0) }
    }
}

impl Host for ScaledHost {
    fn now(&self) -> Instant {
        SystemHost.now()
    }

    fn wall_ms(&self) -> u64 {
        SystemHost.wall_ms()
    }

    fn entropy(&self) -> u64 {
        SystemHost.entropy()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        SystemHost.sleep(time)
    }

    fn wait_scale(&self) -> f64 {
        self.scale
    }
}

/// The clock of one run: ms since it began, ordered waits counted in full.
pub(crate) struct RunClock {
    host: Arc<dyn Host>,
    started: Instant,
    started_wall_ms: u64,
    skipped_ms: AtomicU64,
}

impl RunClock {
    pub(crate) fn start(host: Arc<dyn Host>) -> RunClock {
        let (started, started_wall_ms) = (host.now(), host.wall_ms());
        RunClock { host, started, started_wall_ms, skipped_ms: AtomicU64::new(0) }
    }

    /// The run's time.
    pub(crate) fn at(&self) -> u64 {
        let elapsed = self.host.now().saturating_duration_since(self.started).as_millis();
        let elapsed_ms = u64::try_from(elapsed).unwrap_or(u64::MAX);
        elapsed_ms.saturating_add(self.skipped_ms.load(Ordering::Relaxed))
    }

    /// Wall time at the run's zero.
    pub(crate) fn started_wall_ms(&self) -> u64 {
        self.started_wall_ms
    }

    /// Wall time as the run sees it.
    pub(crate) fn wall_ms(&self) -> u64 {
        self.started_wall_ms.saturating_add(self.at())
    }

    pub(crate) fn entropy(&self) -> u64 {
        self.host.entropy()
    }

    /// Sleeps until the run's clock shows `at`. What is not slept of an ordered wait is added to the clock.
    pub(crate) async fn sleep_until(&self, at: u64, ordered_wait: bool) {
        let left_ms = at.saturating_sub(self.at());
        let scale = if ordered_wait { self.host.wait_scale() } else { 1.0 };
        let slept_ms = (left_ms as f64 * scale) as u64;
        if slept_ms > 0 {
            self.host.sleep(Duration::from_millis(slept_ms)).await;
        }
        if scale < 1.0 {
            let behind_ms = at.saturating_sub(self.at());
            self.skipped_ms.fetch_add(behind_ms, Ordering::Relaxed);
        }
    }
}
