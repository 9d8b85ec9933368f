//! What Aplomb adds to a model call: CPU and wall time against raw reqwest, interleaved in one process.
//!
//! The client runs on one core, a stub server on the other; every round measures each pair in turn, and the medians over
//! the rounds are printed with their ratios. `cargo bench -p aplomb --bench overhead`
#![expect(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark"
)]

mod raw;
mod stub;
mod tool;

use std::time::Instant;

use aplomb::Runtime;
use aplomb::config::Config;
use aplomb::plugins::{NoConfig, Registry};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

const ROUNDS: usize = 15;
const WARM_UP_ROUNDS: usize = 2;
const CALLS_A_ROUND: u32 = 300;

/// What one batch took, per call.
#[derive(Clone, Copy)]
struct Cost {
    cpu_us: f64,
    wall_us: f64,
}

fn main() {
    let base = stub::start(1);
    pin(0);
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let raw = raw::Client::new(&base);
    let plain = runtime(&base, "never", false);
    let streamed = runtime(&base, "always", false);
    let agent = runtime(&base, "never", true);
    let mut rows: [(&str, Vec<Cost>, Vec<Cost>); 3] = [
        ("exec, plain", Vec::new(), Vec::new()),
        ("exec, streamed (50 chunks)", Vec::new(), Vec::new()),
        ("run, one tool call (2 model calls)", Vec::new(), Vec::new()),
    ];
    for round in 0..WARM_UP_ROUNDS + ROUNDS {
        let costs = tokio.block_on(async {
            [
                (measure(|| raw.plain()).await, measure(async || check(plain.exec("a", "hi").await)).await),
                (
                    measure(|| raw.streamed()).await,
                    measure(async || check(streamed.exec("a", "hi").await)).await,
                ),
                (measure(|| raw.agent()).await, measure(async || check(agent.run("a", "hi").await)).await),
            ]
        });
        if round >= WARM_UP_ROUNDS {
            for ((_, raws, ours), (raw, our)) in rows.iter_mut().zip(costs) {
                raws.push(raw);
                ours.push(our);
            }
        }
    }
    println!("medians of {ROUNDS} rounds of {CALLS_A_ROUND} calls, in µs a call\n");
    println!(
        "{:36} {:>9} {:>9} {:>7}   {:>9} {:>9} {:>7}",
        "", "raw cpu", "cpu", "ratio", "raw wall", "wall", "ratio"
    );
    for (name, raws, ours) in &rows {
        let (raw_cpu, cpu) = (median(raws, |cost| cost.cpu_us), median(ours, |cost| cost.cpu_us));
        let (raw_wall, wall) = (median(raws, |cost| cost.wall_us), median(ours, |cost| cost.wall_us));
        let (cpu_ratio, wall_ratio) = (cpu / raw_cpu, wall / raw_wall);
        println!(
            "{name:36} {raw_cpu:9.1} {cpu:9.1} {cpu_ratio:7.2}   {raw_wall:9.1} {wall:9.1} {wall_ratio:7.2}"
        );
    }
}

fn runtime(base: &str, stream: &str, tools: bool) -> Runtime {
    let tools = if tools { json!([{"id": "calc", "impl": "product"}]) } else { json!([]) };
    let config = json!({
        "version": "1.0",
        "agents": [{
            "id": "a",
            "llm": {"provider": "openai_compatible", "model": "m", "api_base": base, "stream": stream},
            "tools": tools,
        }]
    });
    let plugins = Registry::new().tool("product", |_: NoConfig| Ok(tool::Product));
    let config = Config::from_json(&config.to_string(), "bench").unwrap();
    Runtime::builder(config).plugins(plugins).build().unwrap()
}

fn check(answer: Result<String, aplomb::Error>) {
    assert!(answer.unwrap().starts_with("word "));
}

async fn measure<F: AsyncFn()>(call: F) -> Cost {
    let (cpu, wall) = (cpu_us(), Instant::now());
    for _ in 0..CALLS_A_ROUND {
        call().await;
    }
    let calls = f64::from(CALLS_A_ROUND);
    Cost { cpu_us: (cpu_us() - cpu) / calls, wall_us: wall.elapsed().as_secs_f64() * 1e6 / calls }
}

/// CPU time of this thread alone, so that the stub's does not count.
fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn median(costs: &[Cost], of: impl Fn(&Cost) -> f64) -> f64 {
    let mut sorted: Vec<_> = costs.iter().map(of).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Keeps the calling thread on one core. Where the machine has no such core, it stays where it is.
fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    let _as_it_is = sched_setaffinity(None, &cores);
}
