//! How promptly a run ends: how far past its deadline, and how long after it was cancelled, in each thing that it may be
//! waiting for. `cargo bench -p aplomb --bench latency`
//!
//! The targets are design.md's: p99 at most 50 ms past a deadline, at most 100 ms to cancel. A deadline is also held
//! against the run's own clock: a run never ends before it.
#![expect(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark"
)]

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use aplomb::config::Config;
use aplomb::plugins::{NoConfig, Registry};
use aplomb::tools::{Tool, ToolContext};
use aplomb::{Cancellation, Error, RunRequest, Runtime, StopReason};
use aplomb_faultlab::script::Script;
use aplomb_faultlab::server::FaultServer;
use futures_util::future::{BoxFuture, join_all};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Runs of each kind, and how many of them at a time.
const RUNS: usize = 400;
const AT_ONCE: usize = 20;

/// How long a run is left alone.
const LIMIT: Duration = Duration::from_millis(300);

/// What a run is waiting for when it is to end.
struct Phase {
    name: &'static str,
    runtime: Runtime,
    /// A wait that would end after the deadline is not begun, so no deadline falls into a back-off.
    has_deadline: bool,
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let (phases, _kept) = phases().await;
    println!(
        "{RUNS} runs each, {AT_ONCE} at a time; ms past the deadline, and from the cancellation to the end\n"
    );
    println!("{:28} {:>9} {:>9} {:>9}   {:>9} {:>9} {:>9}", "", "p50", "p99", "max", "p50", "p99", "max");
    for phase in &phases {
        let late = match phase.has_deadline {
            true => figures(&measure(|| past_deadline(&phase.runtime)).await),
            false => format!("{:>9} {:>9} {:>9}", "-", "-", "-"),
        };
        let slow = figures(&measure(|| after_cancellation(&phase.runtime)).await);
        println!("{:28} {late}   {slow}", phase.name);
    }
}

fn figures(sorted: &[f64]) -> String {
    let [p50, p99, max] = [50.0, 99.0, 100.0].map(|percent| {
        let place = sorted.len().saturating_sub(1) as f64 * percent / 100.0;
        sorted.get(place.round() as usize).copied().unwrap_or(f64::NAN)
    });
    format!("{p50:9.2} {p99:9.2} {max:9.2}")
}

async fn measure<F: Future<Output = f64>>(run: impl Fn() -> F) -> Vec<f64> {
    let mut times = Vec::new();
    for _ in 0..RUNS / AT_ONCE {
        times.extend(join_all((0..AT_ONCE).map(|_| run())).await);
    }
    times.sort_by(f64::total_cmp);
    times
}

fn request() -> RunRequest {
    RunRequest::new("a", "hi")
}

async fn past_deadline(runtime: &Runtime) -> f64 {
    let started = Instant::now();
    let result = runtime.run_detailed(request().timeout(LIMIT)).await.unwrap();
    let took = started.elapsed();
    assert_eq!(result.stop_reason, StopReason::Timeout, "{result:?}");
    (took.as_secs_f64() - LIMIT.as_secs_f64()) * 1e3
}

async fn after_cancellation(runtime: &Runtime) -> f64 {
    let cancellation = Cancellation::new();
    let run = runtime.run_detailed(request().cancellation(cancellation.clone()));
    let cancel = async {
        tokio::time::sleep(LIMIT).await;
        cancellation.cancel("the benchmark");
        Instant::now()
    };
    let (ended, cancelled_at) = tokio::join!(async { (run.await.unwrap(), Instant::now()) }, cancel);
    let (result, ended_at) = ended;
    assert_eq!(result.stop_reason, StopReason::Cancelled, "{result:?}");
    ended_at.saturating_duration_since(cancelled_at).as_secs_f64() * 1e3
}

/// The phases, and what must be kept for them to last.
async fn phases() -> (Vec<Phase>, Vec<Box<dyn Send>>) {
    let (deaf_address, deaf) = deaf().await;
    let (mute_address, mute) = mute().await;
    let mut kept: Vec<Box<dyn Send>> = vec![Box::new(deaf), Box::new(mute)];
    let mut phases = vec![
        Phase { name: "connect", runtime: runtime(json!({ "api_base": deaf_address })), has_deadline: true },
        Phase {
            name: "TLS handshake",
            runtime: runtime(json!({ "api_base": mute_address })),
            has_deadline: true,
        },
    ];
    let answer =
        |fault: Value| json!({ "reply": { "message": { "text": "one two three" } }, "fault": fault });
    let error = json!({ "error": { "message": "an error that is not told to its end" } });
    let error = json!({
        "reply": { "http": { "status": 500, "body": error } }, "fault": { "stall": { "after_events": 0 } },
    });
    let throttle = json!({ "reply": { "http": { "status": 429, "headers": { "retry-after": "30" } } } });
    let call = json!({ "reply": { "message": { "tool_calls": [{ "name": "hang" }] } } });
    for (name, stream, step, has_deadline) in [
        ("first byte", "never", answer(json!("silence")), true),
        ("stream that stalls", "always", answer(json!({ "stall": { "after_events": 3 } })), true),
        (
            "stream with pings",
            "always",
            answer(json!({ "pings": { "after_events": 3, "every_ms": 5 } })),
            true,
        ),
        (
            "body of white space",
            "never",
            answer(json!({ "pings": { "after_events": 0, "every_ms": 5 } })),
            true,
        ),
        ("error body", "never", error, true),
        ("back-off", "never", throttle, false),
        ("tool", "never", call, true),
    ] {
        let script = json!({ "steps": [step], "at_end": "repeat_last" });
        let server = FaultServer::start(Script::from_json(&script.to_string()).unwrap()).await.unwrap();
        let runtime = runtime(json!({ "api_base": server.base_url(), "stream": stream }));
        kept.push(Box::new(server));
        phases.push(Phase { name, runtime, has_deadline });
    }
    (phases, kept)
}

fn runtime(endpoint: Value) -> Runtime {
    let mut llm = json!({ "provider": "openai_compatible", "model": "m" });
    for (key, value) in endpoint.as_object().unwrap() {
        llm[key] = value.clone();
    }
    let tools = json!([{ "id": "hang", "impl": "hang" }]);
    let config = json!({ "version": "1.0", "agents": [{ "id": "a", "llm": llm, "tools": tools }] });
    let config = Config::from_json(&config.to_string(), "bench").unwrap();
    let plugins = Registry::new().tool("hang", |_: NoConfig| Ok(Hang));
    Runtime::builder(config).plugins(plugins).build().unwrap()
}

/// An address that takes no connection and refuses none.
async fn deaf() -> (String, (TcpListener, Vec<TcpStream>)) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    // This one waits to be accepted, and there is no room for another.
    let first = TcpStream::connect(address).await.unwrap();
    (format!("http://{address}/v1"), (listener, vec![first]))
}

/// An address that takes connections and says nothing, so that no TLS comes about.
async fn mute() -> (String, TcpListener) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    // The system completes connections that nobody accepts, as many as this.
    let listener = socket.listen(4_096).unwrap();
    (format!("https://{}/v1", listener.local_addr().unwrap()), listener)
}

/// A tool that never ends.
struct Hang;

impl Tool for Hang {
    fn description(&self) -> &str {
        "hangs"
    }

    fn parameters(&self) -> Value {
        json!({ "type": "object" })
    }

    fn call(&self, _arguments: Value, _context: ToolContext) -> BoxFuture<'_, Result<Value, Error>> {
        Box::pin(std::future::pending())
    }
}
