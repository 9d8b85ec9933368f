//! Where sessions are kept.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aplomb::config::Config;
use aplomb::event::names;
use aplomb::host::{Host, SystemHost};
use aplomb::plugins::{NoConfig, Registry};
use aplomb::{
    Cancellation, Error, Event, Message, RunRequest, Runtime, SessionStore, StopReason, Subscriber, codes,
};
use futures_util::future::{BoxFuture, join_all};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{burnt, refused};
use crate::support::*;

fn turn(session: &str, input: &str) -> RunRequest {
    RunRequest::new("assistant", input).session_id(session)
}

/// Role and text of a transcript.
fn written(transcript: &[Arc<Message>]) -> Vec<(String, String)> {
    let role = |message: &Message| json!(message.role).as_str().unwrap().to_owned();
    transcript.iter().map(|message| (role(message), message.to_text())).collect()
}

fn pairs(said: &[(&str, &str)]) -> Vec<(String, String)> {
    said.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect()
}

// ---- What is kept.

#[tokio::test(flavor = "multi_thread")]
async fn a_sessions_transcript_is_what_its_completed_runs_said() {
    let script =
        once([calls(&[("probe", json!({}))]), text("first"), status(401), text("second"), text("other")]);
    let lab = Setup::new(script).tool("probe", Probe::saying("x")).start().await;
    lab.run(turn("s", "one")).await.output.unwrap();
    // A run that failed has said nothing.
    lab.run(turn("s", "refused")).await.error();
    // Without a memory the agent knows nothing of the first turn, and the transcript has it all the same.
    let second = lab.run(turn("s", "two")).await;
    assert_eq!(said(&second.log[0]), pairs(&[("user", "two")]));
    lab.run(turn("t", "elsewhere")).await.output.unwrap();
    let transcript = lab.runtime.transcript("s").await.unwrap();
    let expected = [
        ("user", "one"),
        ("assistant", ""),
        ("tool", ""),
        ("assistant", "first"),
        ("user", "two"),
        ("assistant", "second"),
    ];
    assert_eq!(written(&transcript), pairs(&expected));
    lab.runtime.close_session("s").await.unwrap();
    assert!(lab.runtime.transcript("s").await.unwrap().is_empty());
    assert_eq!(lab.runtime.transcript("t").await.unwrap().len(), 2);
    assert!(lab.runtime.transcript("never").await.unwrap().is_empty());
}

/// runtime.md §1: "Runs whose session nobody can name again (`run`, `exec`) take no session and leave no transcript."
#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_session_nobody_can_name_again_is_not_kept() {
    let store = Shelf::default();
    let shelf = store.clone();
    let lab = Setup::new(always(text("ok")))
        .plugins(|registry| registry.session("shelf", move |_: NoConfig| Ok(shelf.clone())))
        .document(|document| document["session"] = json!({ "impl": "shelf" }))
        .start()
        .await;
    in_time(lab.runtime.run("assistant", "hi")).await.unwrap();
    in_time(lab.runtime.exec("assistant", "hi").into_future()).await.unwrap();
    assert!(store.kept.lock().unwrap().is_empty());
    // Whoever asks for everything is told the session's name, so that it can go on.
    lab.run(hi()).await.output.unwrap();
    assert_eq!(store.kept.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_sessions_are_kept_in_memory_as_the_config_says() {
    let lab = Setup::new(always(text("ok")))
        .document(|document| {
            document["session"] = json!({ "type": "in_memory", "config": { "max_sessions": 2 } })
        })
        .start()
        .await;
    for session in ["a", "b", "a", "c"] {
        lab.run(turn(session, "hi")).await.output.unwrap();
    }
    let lengths = join_all(["a", "b", "c"].map(|session| lab.runtime.transcript(session))).await;
    assert_eq!(lengths.into_iter().map(|read| read.unwrap().len()).collect::<Vec<_>>(), [4, 0, 2]);
}

/// runtime.md §1: "one run at a time per session, whichever agents they are of".
#[tokio::test(flavor = "multi_thread")]
async fn runs_of_two_agents_in_one_session_go_one_after_the_other() {
    let mut slow = text("re: {{input}}");
    slow["delay_ms"] = json!(50);
    let lab = Setup::new(always(slow))
        .document(|document| {
            let mut second = document["agents"][0].clone();
            second["id"] = json!("second");
            document["agents"].as_array_mut().unwrap().push(second);
        })
        .start()
        .await;
    let runs = ["assistant", "second"]
        .map(|agent| lab.runtime.run_detailed(RunRequest::new(agent, agent).session_id("s")));
    for result in in_time(join_all(runs)).await {
        assert_eq!(result.unwrap().stop_reason, StopReason::Completed);
    }
    // The second request is not there before the first is answered.
    let log = lab.server.requests();
    assert!(log[1].at_ms >= log[0].at_ms + 50, "{} and {}", log[0].at_ms, log[1].at_ms);
    let transcript = written(&lab.runtime.transcript("s").await.unwrap());
    let first = transcript[0].1.clone();
    let second = if first == "assistant" { "second" } else { "assistant" };
    let (to_first, to_second) = (format!("re: {first}"), format!("re: {second}"));
    let expected =
        [("user", &*first), ("assistant", &*to_first), ("user", second), ("assistant", &*to_second)];
    assert_eq!(transcript, pairs(&expected));
}

// ---- A store of the program's own.

/// Keeps what it is given, by session; or does what a test says.
#[derive(Clone, Default)]
struct Shelf {
    kept: Arc<Mutex<BTreeMap<String, Vec<Arc<Message>>>>>,
    does: Does,
}

/// What a store does when it is asked anything.
#[derive(Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Does {
    #[default]
    Keep,
    Fail,
    FailOtherwise,
    Panic,
    PanicLater,
    Hang,
}

/// What a store is to do.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ShelfConfig {
    does: Does,
}

impl Shelf {
    fn asked<'a, T: Send + 'a>(
        &'a self,
        work: impl FnOnce() -> T + Send + 'a,
    ) -> BoxFuture<'a, Result<T, Error>> {
        let does = self.does;
        if does == Does::Panic {
            burnt()
        }
        Box::pin(async move {
            match does {
                Does::Keep => Ok(work()),
                Does::Fail => Err(Error::new(codes::SESSION_ERROR, "the shelf is full")),
                Does::FailOtherwise => Err(Error::new(codes::TOOL_UNAVAILABLE, "the shelf is full")),
                Does::Panic | Does::PanicLater => burnt(),
                Does::Hang => std::future::pending().await,
            }
        })
    }
}

impl SessionStore for Shelf {
    fn append<'a>(
        &'a self,
        session_id: &'a str,
        messages: &'a [Arc<Message>],
    ) -> BoxFuture<'a, Result<(), Error>> {
        self.asked(move || {
            self.kept.lock().unwrap().entry(session_id.to_owned()).or_default().extend_from_slice(messages);
        })
    }

    fn load<'a>(&'a self, session_id: &'a str) -> BoxFuture<'a, Result<Vec<Arc<Message>>, Error>> {
        self.asked(move || self.kept.lock().unwrap().get(session_id).cloned().unwrap_or_default())
    }

    fn forget<'a>(&'a self, session_id: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        self.asked(move || drop(self.kept.lock().unwrap().remove(session_id)))
    }
}

fn shelf(registry: Registry) -> Registry {
    registry.session("shelf", |config: ShelfConfig| Ok(Shelf { does: config.does, ..Shelf::default() }))
}

async fn with_shelf(does: &'static str) -> Lab {
    Setup::new(always(text("ok")))
        .plugins(shelf)
        .document(move |document| {
            document["session"] = json!({ "impl": "shelf", "config": { "does": does } })
        })
        .start()
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_ones_own_is_told_of_each_run_and_asked_for_transcripts() {
    let lab = with_shelf("keep").await;
    lab.run(turn("s", "one")).await.gives("ok", NO_RETRY);
    let transcript = lab.runtime.transcript("s").await.unwrap();
    assert_eq!(written(&transcript), pairs(&[("user", "one"), ("assistant", "ok")]));
    lab.runtime.close_session("s").await.unwrap();
    assert!(lab.runtime.transcript("s").await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_fails_or_panics_costs_no_run_its_answer() {
    for (does, what) in [
        ("fail", "the shelf is full"),
        ("fail_otherwise", "the session store failed: the shelf is full"),
        ("panic", "the session store panicked: out of cheese"),
        ("panic_later", "the session store panicked: out of cheese"),
    ] {
        let lab = with_shelf(does).await;
        let outcome = lab.run(turn("s", "one")).await;
        outcome.gives("ok", NO_RETRY);
        let told = outcome.events_of(names::SESSION_APPEND_FAILED);
        let details = &told[0].payload["error_details"];
        assert_eq!(
            (told.len(), &details["code"], &details["message"]),
            (1, &json!("session.error"), &json!(what))
        );
        let closed = lab.runtime.close_session("s").await.unwrap_err();
        let read = lab.runtime.transcript("s").await.unwrap_err();
        for error in [closed, read] {
            assert_eq!((error.code(), error.message()), (codes::SESSION_ERROR, what));
            assert_eq!(error.context("session_id"), Some(&json!("s")));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_hangs_is_given_up_by_the_runs_deadline_or_cancellation_and_the_answer_stays() {
    let lab = with_shelf("hang").await;
    let outcome = lab.run(turn("s", "one").timeout(Duration::from_millis(400))).await;
    outcome.gives("ok", NO_RETRY);
    let told = outcome.events_of(names::SESSION_APPEND_FAILED);
    assert!(told[0].payload["error"].as_str().unwrap().contains("its time was up"), "{told:?}");
    let cancellation = Cancellation::new();
    let cancel = async {
        until(|| lab.requests() == 2).await;
        a_while().await;
        cancellation.cancel("operator");
    };
    let (outcome, ()) = tokio::join!(lab.run(turn("s", "two").cancellation(cancellation.clone())), cancel);
    outcome.gives("ok", NO_RETRY);
}

/// Notes the errors of stores.
struct Notes(Arc<Mutex<Vec<String>>>);

impl Subscriber for Notes {
    fn on_event(&self, event: &Event) {
        if event.name == names::SESSION_APPEND_FAILED {
            self.0.lock().unwrap().push(json!(event.payload).to_string());
        }
    }
}

#[tokio::test]
async fn what_a_store_is_told_as_a_credential_is_in_no_event_and_no_error() {
    #[derive(Deserialize, JsonSchema)]
    struct Safe {
        password: String,
    }
    struct Locked(String);
    impl SessionStore for Locked {
        fn append<'a>(&'a self, _: &'a str, _: &'a [Arc<Message>]) -> BoxFuture<'a, Result<(), Error>> {
            let error = Error::new(codes::SESSION_ERROR, format!("{} does not open it", self.0));
            Box::pin(std::future::ready(Err(error)))
        }

        fn load<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<Arc<Message>>, Error>> {
            let cause = std::io::Error::other(format!("at {}", self.0));
            let error = Error::foreign(codes::TOOL_UNAVAILABLE, cause);
            Box::pin(std::future::ready(Err(error)))
        }

        fn forget<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), Error>> {
            let error = Error::new(codes::SESSION_ERROR, format!("{} does not open it", self.0));
            Box::pin(std::future::ready(Err(error.with_hint(format!("try {}", self.0)))))
        }
    }
    let script = json!({ "steps": [{ "reply": { "message": { "text": "ok" } } }] });
    let document = json!({
        "version": "1.0",
        "agents": [{ "id": "assistant", "llm": { "provider": "mock", "script": script } }],
        "session": { "impl": "safe", "config": { "password": "canary-0123456789" } },
    });
    let notes = Arc::<Mutex<Vec<String>>>::default();
    let runtime = Runtime::builder(Config::from_json(&document.to_string(), "agent.json").unwrap())
        .plugins(Registry::new().session("safe", |config: Safe| Ok(Locked(config.password))))
        .subscriber(Notes(notes.clone()))
        .build()
        .unwrap();
    assert_eq!(runtime.run_detailed(hi()).await.unwrap().final_output.as_deref(), Some("ok"));
    let read = runtime.transcript("s").await.unwrap_err();
    let closed = runtime.close_session("s").await.unwrap_err();
    for error in [read, closed] {
        let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |&error| error.source());
        let told = causes.map(|error| format!("{error} {error:?}")).collect::<String>();
        let told = format!("{told} {:?} {:?}", error.hint(), error.details());
        assert_eq!((error.code(), error.context("session_id")), (codes::SESSION_ERROR, Some(&json!("s"))));
        assert!(told.contains("[redacted]") && !told.contains("canary"), "{told}");
    }
    let notes = notes.lock().unwrap();
    assert!(notes[0].contains("[redacted] does not open it") && !notes[0].contains("canary"), "{notes:?}");
}

/// Says what it was told, in place of being made.
#[derive(Deserialize, JsonSchema)]
struct Telltale {
    token: String,
}

impl Telltale {
    fn made<T>(self) -> Result<T, Error> {
        Err(Error::new(codes::PLUGIN_ERROR, format!("nothing opens with {}", self.token)))
    }
}

#[test]
fn what_a_plugin_is_told_as_a_credential_is_in_no_error_of_its_making() {
    let registry = || {
        Registry::new()
            .session("telltale", |config: Telltale| config.made::<Shelf>())
            .events("telltale", |config: Telltale| config.made::<Notes>())
            .tool("telltale", |config: Telltale| config.made::<aplomb::tools::Calc>())
    };
    let plugin = json!({ "impl": "telltale", "config": { "token": "canary-0123456789" } });
    let mut tool = plugin.clone();
    tool["id"] = json!("tool");
    for (key, part) in [("session", plugin.clone()), ("events", plugin), ("tools", json!([tool]))] {
        let error = refused(registry(), |document| match key {
            "tools" => document["agents"][0]["tools"] = part,
            _ => document[key] = part,
        });
        let told = format!("{error} {:?}", error.details());
        assert_eq!(error.code(), codes::PLUGIN_ERROR, "{told}");
        assert!(told.contains("nothing opens with [redacted]") && !told.contains("canary"), "{told}");
    }
}

/// A host on which 10 s are over at once.
struct Hurried;

impl Host for Hurried {
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
        if time == Duration::from_secs(10) {
            return Box::pin(std::future::ready(()));
        }
        SystemHost.sleep(time)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_hangs_is_given_up_after_10_s_and_by_then_the_agents_remember_nothing() {
    let lab = Setup::new(always(text("ok")))
        .plugins(shelf)
        .agent(|agent| agent["memory"] = json!({ "type": "buffer", "config": {} }))
        .document(|document| document["session"] = json!({ "impl": "shelf", "config": { "does": "hang" } }))
        .build(|builder| builder.host(Hurried))
        .start()
        .await;
    let briefly = |input: &str| turn("s", input).timeout(Duration::from_millis(400));
    lab.run(briefly("one")).await.output.unwrap();
    let second = lab.run(briefly("two")).await;
    assert_eq!(said(&second.log[0]), pairs(&[("user", "one"), ("assistant", "ok"), ("user", "two")]));
    let read = in_time(lab.runtime.transcript("s")).await.unwrap_err();
    let closed = in_time(lab.runtime.close_session("s")).await.unwrap_err();
    for error in [read, closed] {
        assert_eq!(
            (error.code(), error.message()),
            (codes::SESSION_ERROR, "the session store was not done when its time was up")
        );
    }
    // And the session is nobody's.
    let third = lab.run(briefly("three")).await;
    assert_eq!(said(&third.log[0]), pairs(&[("user", "three")]));
}

#[test]
fn what_is_wrong_with_a_store_is_named_with_its_path() {
    for (session, code, said, hint) in [
        (
            json!({ "impl": "shelf", "config": { "does": "sleep" } }),
            codes::PLUGIN_CONFIG,
            "session.config.does: this is none of keep, fail, fail_otherwise, panic, panic_later and hang",
            None,
        ),
        (
            json!({ "impl": "shelve", "config": {} }),
            codes::PLUGIN_LOAD,
            "session.impl: no session store is called \"shelve\"",
            Some("did you mean \"shelf\"?"),
        ),
        (
            json!({ "type": "in_memory", "config": { "max_sessions": 10_000_001 } }),
            codes::PLUGIN_CONFIG,
            "session.config.max_sessions: 10000001 is not in 0..=10000000",
            None,
        ),
    ] {
        let error = refused(shelf(Registry::new()), |document: &mut Value| document["session"] = session);
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains(said), "{said}: {error}");
        assert!(hint.is_none_or(|hint| error.hint() == Some(hint)), "{error}");
    }
}
