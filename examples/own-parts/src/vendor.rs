//! A vendor: a server of our own that speaks Chat Completions, as a row of data.

use aplomb::provider::{Place, Vendor, Wire};

pub(crate) fn harbour() -> Vendor {
    let mut harbour = Vendor::new("harbour", Wire::OpenaiChat);
    // It is in this house, and takes no key.
    harbour.place = Place::At("http://127.0.0.1:8000/v1");
    // And Responses it does not speak.
    harbour.speaks_both = false;
    harbour
}
