//! What a verdict costs, JSON included: `cargo bench -p aplomb-core --bench classify`.
//!
//! The target is a p99 of 50 µs over the corpus, and a cost that grows no faster than the body.

use std::time::Instant;

use aplomb_core::failure::{BODY_LIMIT, Failure, Observation, classify};
use divan::{Bencher, black_box};

const CORPUS: &str = include_str!("../tests/corpus/dev.jsonl");

fn main() {
    print_percentiles();
    divan::main();
}

fn corpus() -> Vec<Failure> {
    let lines = CORPUS.lines().filter_map(|line| serde_json::from_str::<Observation>(line).ok());
    lines.map(Observation::into_failure).collect()
}

/// Each failure of the corpus is judged many times; its figure is the median, so that what else the machine does is not
/// counted.
#[expect(clippy::disallowed_methods, clippy::print_stdout, reason = "a benchmark reads the clock and prints")]
fn print_percentiles() {
    let mut micros: Vec<f64> = corpus()
        .iter()
        .map(|failure| {
            let mut times: Vec<f64> = (0..101)
                .map(|_| {
                    let begin = Instant::now();
                    black_box(classify(black_box(failure)));
                    begin.elapsed().as_secs_f64() * 1e6
                })
                .collect();
            times.sort_by(f64::total_cmp);
            times.get(50).copied().unwrap_or_default()
        })
        .collect();
    micros.sort_by(f64::total_cmp);
    let at = |share: f64| micros.get((micros.len() as f64 * share) as usize).copied().unwrap_or_default();
    let max = micros.last().copied().unwrap_or_default();
    println!("corpus: p50 {:.1} µs, p99 {:.1} µs, max {max:.1} µs", at(0.50), at(0.99));
}

#[divan::bench]
fn whole_corpus(bencher: Bencher<'_, '_>) {
    let failures = corpus();
    bencher.bench(|| failures.iter().map(classify).filter(|verdict| verdict.retryable).count());
}

/// Bodies that grow up to the cap: a message, and what surrounds it.
#[divan::bench(args = [256, 1024, 2048, 4096, BODY_LIMIT])]
fn message_of(bencher: Bencher<'_, '_>, size: usize) {
    let words = "the model's answer, 'so it says', is not what \"was\" asked for; ";
    let message: String = words.replace('"', "\\\"").repeat(size / words.len());
    let failure = Failure::status(400, format!("{{\"error\":{{\"message\":\"{message}\"}}}}").as_bytes());
    bencher.bench(|| classify(black_box(&failure)));
}

#[divan::bench(args = [256, 1024, 2048, 4096, BODY_LIMIT])]
fn fields_of(bencher: Bencher<'_, '_>, size: usize) {
    let field = r#"{"key":"value","number":429,"list":[1,2,3]},"#;
    let list = field.repeat(size / field.len());
    let failure =
        Failure::status(500, format!("{{\"error\":{{\"message\":\"no\"}},\"more\":[{list}1]}}").as_bytes());
    bencher.bench(|| classify(black_box(&failure)));
}

/// What is cut off is read by the lenient reader.
#[divan::bench]
fn cut_off_at_the_cap(bencher: Bencher<'_, '_>) {
    let list = r#"{"key":"value","number":429},"#.repeat(1_000);
    let failure =
        Failure::status(500, format!("{{\"error\":{{\"message\":\"no\"}},\"more\":[{list}").as_bytes());
    bencher.bench(|| classify(black_box(&failure)));
}

#[divan::bench]
fn quotes_without_end(bencher: Bencher<'_, '_>) {
    let failure = Failure::status(500, " 'a".repeat(BODY_LIMIT / 3).as_bytes());
    bencher.bench(|| classify(black_box(&failure)));
}
