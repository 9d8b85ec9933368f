//! Prints what the random run of a seed did: `cargo run -p aplomb-sim --example trace -- SEED`.
#![expect(clippy::print_stdout, reason = "printing is its job")]

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seed = std::env::args().nth(1).ok_or("usage: trace SEED")?.parse()?;
    for record in aplomb_sim::chaotic(seed).run("hi").records() {
        println!("{:>8}  {}", record.at, serde_json::to_string(&record.fact)?);
    }
    Ok(())
}
