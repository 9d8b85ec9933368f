//! What an error costs: `cargo bench -p aplomb-core --bench errors`.

use aplomb_core::error::{Error, codes};
use divan::{Bencher, black_box};

fn main() {
    divan::main();
}

fn typical() -> Error {
    Error::new(
        codes::LLM_RATE_LIMIT,
        "openai/gpt failed after 6 attempts: LLMRateLimitError: HTTP 429: slow down",
    )
    .with_context("status", 429)
    .with_context("reason", "rate_limit")
    .with_context("retry_after_ms", 2_000)
}

#[divan::bench]
fn build_with_context() -> Error {
    typical()
}

#[divan::bench]
fn to_dict(bencher: Bencher<'_, '_>) {
    let error = typical();
    bencher.bench(|| black_box(&error).to_dict());
}

#[divan::bench]
fn details_with_a_cause(bencher: Bencher<'_, '_>) {
    let error = typical().with_cause(Error::new(codes::LLM_CONNECTION, "reset"));
    bencher.bench(|| black_box(&error).details());
}
