//! What holds for every call.

use aplomb_core::decide::{
    Action, Allowances, Backoff, Jitter, Layer, Ledger, Level, Outcome, Policy, Restart, decide,
};
use aplomb_core::failure::Reason;
use proptest::prelude::*;

use crate::arithmetic::*;
use crate::call::*;
use crate::drawn::*;
use crate::model::*;

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_decision_is_the_one_that_the_page_says(call in calls()) {
        let mut model = Model::new(&call.policy, call.by_exec);
        for decided in make(&call) {
            model.attempt(decided.step.delivers);
            let says = model.says(&decided.step.verdict, decided.moment);
            match (&says, &decided.decision.action) {
                (Says::Send(expected) | Says::Open(expected), Action::Send { layer, delay_ms, .. }) => {
                    prop_assert_eq!(layer, expected, "{:?} {:?}", says, decided);
                    let [_, range] = wait(&call.policy, *layer, model.used(*layer), decided.hint());
                    prop_assert!(range.contains(delay_ms), "{:?}: {:?}", range, decided);
                    model.charge(*layer);
                }
                (Says::Stop(Some(expected)), Action::Stop { outcome, .. }) => {
                    prop_assert_eq!(outcome, expected, "{:?}", decided);
                }
                (Says::Open(_), Action::Stop { outcome, .. }) => {
                    prop_assert_eq!(*outcome, Outcome::AfterAttempts, "{:?}", decided);
                }
                (Says::Stop(None), Action::Stop { .. }) => {}
                _ => prop_assert!(false, "the page says {:?}: {:?}", says, decided),
            }
            prop_assert!(!decided.decision.rule.is_empty(), "every decision names its rule");
        }
    }

    #[test]
    fn the_cap_is_one_and_the_larger_of_transport_plus_session_and_exec(policy in policies(), by_exec: bool) {
        let (t, s, x) = allowances(&policy, by_exec);
        let given = Allowances::of(&policy, by_exec);
        prop_assert_eq!((given.transport, given.session, given.exec), (t, s, x));
        prop_assert_eq!(given.cap(), 1 + (t + s).max(x));
        prop_assert_eq!(Ledger::new(given).cap(), given.cap());
    }

    #[test]
    fn a_call_ends_within_its_cap(call in calls()) {
        let story = make(&call);
        prop_assert!(matches!(last(&story), Action::Stop { .. }), "endless");
        prop_assert!(story.len() <= cap(&call.policy, call.by_exec) as usize);
    }

    #[test]
    fn no_layer_pays_more_than_its_allowance(call in calls()) {
        let (t, s, x) = allowances(&call.policy, call.by_exec);
        let layers = layers(&make(&call));
        for (layer, allowance) in
            [(Layer::First, 0), (Layer::Transport, t), (Layer::Session, s), (Layer::Exec, x)]
        {
            let paid = layers.iter().filter(|paid| **paid == layer).count();
            prop_assert!(paid <= allowance as usize, "{layers:?}");
        }
    }

    #[test]
    fn a_patient_silent_call_that_could_pass_later_uses_all_of_transport_and_then_all_of_session(
        call in calls_of(retryable_verdicts()),
    ) {
        let mut call = patient(silent(call));
        call.policy.transport.retry_on_connection_errors = true;
        let (t, s, x) = allowances(&call.policy, call.by_exec);
        let expected = match (t, s) {
            (0, 0) => vec![Layer::Exec; x as usize],
            _ => [vec![Layer::Transport; t as usize], vec![Layer::Session; s as usize]].concat(),
        };
        prop_assert_eq!(layers(&make(&call)), expected);
    }

    #[test]
    fn the_first_permanent_verdict_stops_and_says_permanently(call in calls()) {
        let story = make(&call);
        for (index, decided) in story.iter().enumerate() {
            let verdict = &decided.step.verdict;
            if verdict.retryable || verdict.reason == Reason::Unknown {
                continue;
            }
            prop_assert_eq!(index + 1, story.len(), "a request after a permanent verdict");
            let Action::Stop { outcome, .. } = decided.decision.action else { panic!("the last one sends") };
            // Past the deadline the page does not say with which words.
            if decided.moment.deadline.is_none_or(|deadline| decided.moment.at < deadline) {
                prop_assert_eq!(outcome, Outcome::Permanent, "{:?}", decided);
            }
        }
    }

    #[test]
    fn a_permanent_failure_costs_exactly_one_request(call in calls_of(permanent_verdicts())) {
        prop_assert_eq!(make(&call).len(), 1);
    }

    #[test]
    fn an_unknown_failure_costs_one_request_by_run_and_exec_adds_its_own(
        call in calls_of(unknown_verdicts()),
    ) {
        let call = patient(silent(call));
        let (_, _, x) = allowances(&call.policy, call.by_exec);
        let story = make(&call);
        prop_assert_eq!(layers(&story), vec![Layer::Exec; if call.by_exec { x as usize } else { 0 }]);
        let after_attempts = matches!(last(&story), Action::Stop { outcome: Outcome::AfterAttempts, .. });
        prop_assert!(after_attempts, "unknown is not permanent");
    }

    #[test]
    fn what_has_delivered_is_not_repeated_for_an_unknown_failure(call in calls_of(unknown_verdicts())) {
        for decided in make(&call) {
            prop_assert!(!decided.ledger.delivered() || decided.sends().is_none(), "{:?}", decided);
        }
    }

    #[test]
    fn what_has_delivered_is_never_paid_by_transport(call in calls()) {
        for decided in make(&call) {
            let by_transport = decided.sends().is_some_and(|(layer, _)| layer == Layer::Transport);
            prop_assert!(!decided.ledger.delivered() || !by_transport, "{:?}", decided);
        }
    }

    #[test]
    fn what_has_delivered_is_not_repeated_where_restart_is_never(call in calls()) {
        let mut call = call;
        call.policy.restart = Restart::Never;
        for decided in make(&call) {
            prop_assert!(!decided.ledger.delivered() || decided.sends().is_none(), "{:?}", decided);
        }
    }

    #[test]
    fn the_two_ways_of_announcing_a_restart_decide_alike(call in calls()) {
        let with = |restart| {
            let mut call = call.clone();
            call.policy.restart = restart;
            make(&call).into_iter().map(|decided| decided.decision).collect::<Vec<_>>()
        };
        prop_assert_eq!(with(Restart::Auto), with(Restart::Marker));
    }

    #[test]
    fn more_deliveries_never_add_attempts_where_restart_is_never(
        call in calls(),
        more in prop::collection::vec(any::<bool>(), 14),
    ) {
        let mut call = call;
        call.policy.restart = Restart::Never;
        let attempts = make(&call).len();
        for (step, delivers) in call.steps.iter_mut().zip(more) {
            step.delivers |= delivers;
        }
        prop_assert!(make(&call).len() <= attempts);
    }

    #[test]
    fn a_wait_is_never_shorter_than_the_providers_hint(call in calls()) {
        for decided in make(&call) {
            if let (Some((_, delay_ms)), Some(hint)) = (decided.sends(), decided.hint()) {
                prop_assert!(delay_ms >= hint, "{:?}", decided);
            }
        }
    }

    #[test]
    fn a_wait_is_never_longer_than_the_layers_delay_or_the_hint_and_a_tenth_of_it_up_to_a_second(
        call in calls(),
    ) {
        for decided in make(&call) {
            let Some((layer, delay_ms)) = decided.sends() else { continue };
            let delay = *layer_delay(&call.policy, layer, decided.ledger.used(layer)).end();
            let longest = delay.max(decided.hint().map_or(0, |hint| hint + (hint / 10).min(1_000)));
            prop_assert!(delay_ms <= longest, "{} > {}: {:?}", delay_ms, longest, decided);
        }
    }

    #[test]
    fn without_jitter_a_wait_is_exactly_the_layers_delay_or_the_hint(call in calls()) {
        let mut call = call;
        call.policy.transport.jitter = Jitter::None;
        for decided in make(&call) {
            let Some((layer, delay_ms)) = decided.sends() else { continue };
            let (low, high) = layer_delay(&call.policy, layer, decided.ledger.used(layer)).into_inner();
            let hint = decided.hint().unwrap_or(0);
            prop_assert!((low.max(hint)..=high.max(hint)).contains(&delay_ms), "{:?}", decided);
        }
    }

    #[test]
    fn a_wait_says_who_asked_for_it(call in calls()) {
        for decided in make(&call) {
            let Action::Send { layer, ref delay_source, .. } = decided.decision.action else { continue };
            let delay = layer_delay(&call.policy, layer, decided.ledger.used(layer));
            let jittered = jittered(call.policy.transport.jitter, delay);
            match decided.hint() {
                None => prop_assert_eq!(delay_source, "backoff"),
                Some(hint) if hint > *jittered.end() => prop_assert_eq!(delay_source, "retry-after"),
                Some(hint) if hint + addition(Some(hint)) < *jittered.start() => {
                    prop_assert_eq!(delay_source, "backoff");
                }
                Some(_) => prop_assert!(["backoff", "retry-after"].contains(&delay_source.as_str())),
            }
        }
    }

    #[test]
    fn no_wait_ends_after_the_deadline(call in calls()) {
        for decided in make(&call) {
            if let (Some((_, delay_ms)), Some(deadline)) = (decided.sends(), decided.moment.deadline) {
                prop_assert!(decided.moment.at + delay_ms <= deadline, "{:?}", decided);
            }
        }
    }

    #[test]
    fn nothing_is_sent_after_the_deadline(call in calls(), late in 1..=1_000_000_u64) {
        let mut call = call;
        call.deadline = Some(call.starts_at);
        call.steps[0].takes_ms = late;
        prop_assert_eq!(make(&call).len(), 1);
    }

    #[test]
    fn no_wait_without_its_random_addition_is_longer_than_the_longest_inline_wait(call in calls()) {
        for decided in make(&call) {
            let Some((layer, delay_ms)) = decided.sends() else { continue };
            let longest = call.policy.max_inline_wait_ms;
            prop_assert!(delay_ms <= longest.saturating_add(addition(decided.hint())), "{:?}", decided);
            let [bare, _] = wait(&call.policy, layer, decided.ledger.used(layer), decided.hint());
            prop_assert!(*bare.start() <= longest, "{:?}", decided);
        }
    }

    #[test]
    fn transport_never_pays_after_the_session_has(call in calls()) {
        let layers = layers(&make(&call));
        if let Some(first) = layers.iter().position(|layer| *layer == Layer::Session) {
            prop_assert!(!layers[first..].contains(&Layer::Transport), "{layers:?}");
        }
    }

    #[test]
    fn the_level_only_ever_moves_forward(call in calls()) {
        let story = make(&call);
        for pair in story.windows(2) {
            prop_assert!(pair[0].ledger.level() <= pair[1].ledger.level(), "{pair:?}");
        }
    }

    #[test]
    fn the_level_is_transport_until_the_session_pays_and_spent_once_the_session_has_paid_all(
        call in calls(),
    ) {
        for decided in make(&call) {
            let ledger = &decided.ledger;
            let (paid, left) = (ledger.used(Layer::Session), ledger.left(Layer::Session));
            match ledger.level() {
                Level::Transport => prop_assert_eq!(paid, 0, "{:?}", decided),
                Level::Session => prop_assert!(left > 0, "{:?}", decided),
                Level::Spent => prop_assert_eq!(left, 0, "{:?}", decided),
            }
            if paid == 0 && ledger.left(Layer::Transport) > 0 {
                prop_assert_eq!(ledger.level(), Level::Transport, "{:?}", decided);
            }
        }
    }

    #[test]
    fn the_ledger_counts_attempts_and_payments_as_they_were_made(call in calls()) {
        let story = make(&call);
        let (t, s, x) = allowances(&call.policy, call.by_exec);
        let layers = layers(&story);
        for (index, decided) in story.iter().enumerate() {
            prop_assert_eq!(decided.ledger.attempts() as usize, index + 1);
            for (layer, allowance) in [(Layer::Transport, t), (Layer::Session, s), (Layer::Exec, x)] {
                let paid = layers[..index].iter().filter(|paid| **paid == layer).count() as u32;
                prop_assert_eq!(decided.ledger.used(layer), paid);
                // What transport has left once the session has begun is forfeit; it may show as nothing left.
                if layer != Layer::Transport {
                    prop_assert_eq!(decided.ledger.left(layer), allowance - paid);
                }
            }
            prop_assert_eq!(decided.ledger.delivered(), story[..=index].iter().any(|d| d.step.delivers));
        }
    }

    #[test]
    fn within_a_layer_no_delay_is_shorter_than_the_one_before(call in calls_of(retryable_verdicts())) {
        let mut call = patient(without_hints(call));
        call.policy.transport.jitter = Jitter::None;
        let sends: Vec<_> = make(&call).iter().filter_map(Decided::sends).collect();
        for pair in sends.windows(2) {
            prop_assert!(pair[0].0 != pair[1].0 || pair[0].1 <= pair[1].1, "{sends:?}");
        }
    }

    #[test]
    fn the_same_failure_with_the_same_account_is_decided_the_same_way(call in calls()) {
        for decided in make(&call) {
            let again =
                decide(&unseen(), &decided.step.verdict, &decided.ledger, &call.policy, decided.moment);
            prop_assert_eq!(&again, &decided.decision);
        }
    }

    #[test]
    fn full_jitter_stays_between_nothing_and_the_delay(delay in extremes(), entropy in extremes()) {
        prop_assert!(Jitter::Full.apply(delay, entropy) <= delay);
    }

    #[test]
    fn equal_jitter_stays_between_half_of_the_delay_and_the_delay(
        delay in extremes(),
        entropy in extremes(),
    ) {
        prop_assert!((delay / 2..=delay).contains(&Jitter::Equal.apply(delay, entropy)));
    }

    #[test]
    fn no_jitter_leaves_the_delay_as_it_is(delay in extremes(), entropy in extremes()) {
        prop_assert_eq!(Jitter::None.apply(delay, entropy), delay);
    }

    #[test]
    fn no_number_is_too_large_to_decide_with(
        policy in extreme_policies(),
        by_exec: bool,
        at in extremes(),
        deadline in prop::option::of(extremes()),
        attempts in prop::collection::vec((any_verdict(), any::<bool>(), extremes()), 1..=8),
    ) {
        let steps: Vec<Step> = attempts
            .into_iter()
            .map(|(verdict, delivers, entropy)| Step { verdict, delivers, takes_ms: 1, entropy })
            .collect();
        let given = Allowances::of(&policy, by_exec);
        let limit = given.cap();
        for decided in make(&Call { policy: policy.clone(), by_exec, starts_at: at, deadline, steps }) {
            prop_assert!(decided.ledger.attempts() <= limit.max(1));
            let Some((_, delay_ms)) = decided.sends() else { continue };
            prop_assert!(delay_ms >= decided.hint().unwrap_or(0), "{:?}", decided);
            prop_assert!(delay_ms <= policy.max_inline_wait_ms.saturating_add(addition(decided.hint())));
            if let Some(deadline) = deadline {
                let ends = decided.moment.at.checked_add(delay_ms);
                prop_assert!(ends.is_some_and(|ends| ends <= deadline), "{:?}", decided);
            }
        }
    }

    #[test]
    fn no_allowance_is_too_large_to_add(
        max_attempts in extreme_counts(),
        session_retries in extreme_counts(),
        exec_retries in extreme_counts(),
        by_exec: bool,
    ) {
        let mut policy = Policy::default();
        policy.transport.max_attempts = max_attempts;
        policy.session.max_retries = session_retries;
        policy.exec.max_retries = exec_retries;
        let given = Allowances::of(&policy, by_exec);
        prop_assert!(given.cap() >= 1);
        prop_assert!(given.cap() >= given.transport.max(given.session).max(given.exec));
    }

    #[test]
    fn no_back_off_overflows_its_maximum(
        initial_ms in extremes(),
        multiplier in extreme_multipliers(),
        max_ms in extremes(),
        index in extreme_counts(),
    ) {
        let delay = Backoff { initial_ms, multiplier, max_ms }.delay_ms(index);
        prop_assert!(delay <= max_ms);
        if multiplier >= 1.0 && initial_ms <= 1 << 53 {
            prop_assert!(delay >= initial_ms.min(max_ms), "{}", delay);
        }
    }
}
