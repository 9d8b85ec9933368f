//! Which of an agent's models are passed over, for all of its runs in this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Until when each target is passed over, in ms of Unix time. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Benches(Arc<Mutex<BTreeMap<usize, u64>>>);

impl Benches {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A bench only ever ends later.
    pub(crate) fn bench(&self, target: usize, until_wall_ms: u64) {
        let mut benches = self.lock();
        let bench = benches.entry(target).or_default();
        *bench = until_wall_ms.max(*bench);
    }

    /// What has become known since `told` was brought up to date.
    pub(crate) fn news(&self, told: &mut BTreeMap<usize, u64>) -> Vec<(usize, u64)> {
        let benches = self.lock();
        let news = benches.iter().filter(|(target, until)| told.get(target) != Some(until));
        let news: Vec<_> = news.map(|(target, until)| (*target, *until)).collect();
        told.extend(news.iter().copied());
        news
    }
}
