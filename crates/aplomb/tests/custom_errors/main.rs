//! Errors that a program defines: what the derive makes of them, the plain way without it, and what is refused.

mod by_hand;
mod derived;
mod hygiene;
mod refused;
