//! The pure heart of Aplomb: what failed, what it is, what to do about it, and the machine that runs an agent.
//!
//! Nothing here reads a clock, opens a socket, touches a file or draws a random number. Time and entropy come in as
//! arguments, requests go out as [`run::Effect`]s, and everything that happened is a [`record::Record`]. That is what
//! makes a run the same under test, in a server and on resume.
//!
//! | step | module | question |
//! |---|---|---|
//! | see | [`failure`] | what did the provider or the network show? |
//! | classify | [`failure::classify()`] | what is it? |
//! | decide | [`decide`] | what happens next? |
//! | act, record | [`run`], [`record`], [`event`] | the machine, its facts, what observers are told |

pub mod decide;
pub mod error;
pub mod event;
pub mod failure;
pub mod message;
pub mod near;
pub mod record;
pub mod redact;
pub mod run;
pub mod tool;

pub use error::{Error, ErrorDetails};
