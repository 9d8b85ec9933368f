//! A program with the whole command line of Aplomb, and parts of its own: a tool with an error, a pattern, a memory, a tool
//! executor, a context assembler, a provider, a vendor, a session store and an event sink.
//!
//! ```text
//! cargo run -p own-parts -- run examples/own-parts/agent.json --input "How is parcel A17?"
//! cargo run -p own-parts -- run examples/own-parts/desk.json --input "How is parcel A17?"
//! cargo run -p own-parts -- policy examples/own-parts/office.json
//! cargo run -p own-parts -- list-plugins
//! cargo run -p own-parts -- schema --plugin parcels
//! ```

mod assembler;
mod executor;
mod memory;
mod pattern;
mod provider;
mod sink;
mod store;
mod tool;
mod vendor;

use std::process::ExitCode;

use aplomb::plugins::{NoConfig, Registry};

fn main() -> ExitCode {
    aplomb_cli::main_with(
        Registry::new()
            .tool("parcels", |config: tool::ParcelsConfig| Ok(tool::Parcels::new(config)))
            .pattern("polite", |config: pattern::PoliteConfig| Ok(pattern::Polite::new(config)))
            .memory("notes", |config: memory::NotesConfig| Ok(memory::Notes::new(config)))
            .tool_executor("careful", |config: executor::CarefulConfig| Ok(executor::Careful(config)))
            .context_assembler("last_word", |_: NoConfig| Ok(assembler::LastWord))
            .provider("desk", |config: provider::DeskConfig| Ok(provider::Desk(config)))
            .vendor(vendor::harbour())
            .session("book", |config: store::BookConfig| Ok(store::Book::new(config)))
            .events("bell", |config: sink::BellConfig| Ok(sink::Bell(config))),
    )
}
