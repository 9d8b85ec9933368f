//! Whoever watches runs.

use aplomb_core::event::Event;

/// Whoever is told what happens in runs.
///
/// A subscriber is called while the run waits, so it should hand on what takes time. One that panics disturbs nobody.
pub trait Subscriber: Send + Sync + 'static {
    /// Something happened.
    fn on_event(&self, event: &Event);

    /// Whether it wants the model's answers piece by piece, as they come.
    ///
    /// Where nobody who watches a run does, an answer's `llm.delta`s follow when its call is done, a whole block each:
    /// what nobody has seen a piece of can be restarted in silence. Where somebody does, all who watch get the pieces.
    fn wants_deltas(&self) -> bool {
        false
    }
}
