//! Ten thousand random runs keep every promise.

use aplomb_core::decide::{Action, Layer};
use aplomb_core::record::Fact;
use aplomb_core::run::Purpose;
use aplomb_sim::chaotic;

/// `APLOMB_SEED=n cargo test -p aplomb-sim --test chaos` runs that one alone.
#[test]
fn ten_thousand_random_runs_keep_every_promise() {
    let seeds = match std::env::var("APLOMB_SEED") {
        Ok(seed) => {
            let seed = seed.parse::<u64>().expect("APLOMB_SEED is a number");
            seed..=seed
        }
        Err(_) => 0..=9_999,
    };
    let mut endings = std::collections::BTreeMap::<&str, u32>::new();
    let mut kinds = std::collections::BTreeMap::<String, u32>::new();
    let mut layers = std::collections::BTreeMap::<&str, u32>::new();
    let single = seeds.end() == seeds.start();
    for seed in seeds {
        let run = std::panic::catch_unwind(|| chaotic(seed).run("hi"));
        let Ok(run) = run else {
            panic!(
                "seed {seed} broke a promise. Alone: APLOMB_SEED={seed} cargo test -p aplomb-sim --test chaos\n\
                 What it did: cargo run -p aplomb-sim --example trace -- {seed}"
            );
        };
        let ending = run.finished().expect("checked by the promises").stop_reason.as_str();
        *endings.entry(ending).or_default() += 1;
        if let Some(kind) = run.error().and_then(|error| Some(error.limit()?.kind?.to_owned())) {
            *kinds.entry(kind).or_default() += 1;
        }
        for record in run.records() {
            if let Fact::AttemptStarted { layer, .. } = &record.fact {
                *layers.entry(layer.as_str()).or_default() += 1;
            }
            if let Fact::AttemptRefused { .. } = &record.fact {
                *layers.entry("refused").or_default() += 1;
            }
            if let Fact::CallOpened { purpose: Purpose::Correction, .. } = &record.fact {
                *layers.entry("correction").or_default() += 1;
            }
            if let Fact::ToolAdmitted { .. } = &record.fact {
                *layers.entry("admitted").or_default() += 1;
            }
            if let Fact::Decided { decision, .. } = &record.fact
                && let Action::Compact | Action::ReadCredential = decision.action
            {
                *layers.entry("tried").or_default() += 1;
            }
        }
    }
    // The dice must reach every kind of ending, or the promises were hardly put to the test.
    if !single {
        for ending in ["completed", "failed", "cancelled", "timeout", "max_steps", "budget_exhausted"] {
            assert!(endings.get(ending).is_some_and(|count| *count >= 100), "{endings:?}");
        }
        assert!(layers.get("admitted").is_some_and(|count| *count >= 20), "{layers:?}");
        for kind in ["steps", "tool_calls", "duration", "cost"] {
            assert!(kinds.get(kind).is_some_and(|count| *count >= 100), "{kinds:?}");
        }
        let all = [
            Layer::Transport,
            Layer::Session,
            Layer::Exec,
            Layer::Compaction,
            Layer::Refresh,
            Layer::Fallback,
        ];
        for layer in all.map(Layer::as_str).into_iter().chain(["tried", "refused", "correction"]) {
            assert!(layers.get(layer).is_some_and(|count| *count >= 100), "{layers:?}");
        }
    }
}
