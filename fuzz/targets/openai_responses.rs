//! An answer of the `openai_responses` wire, streamed and not.
#![no_main]

use aplomb_llm::wire::Wire;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| aplomb_fuzz::decode(Wire::OpenaiResponses, bytes));
