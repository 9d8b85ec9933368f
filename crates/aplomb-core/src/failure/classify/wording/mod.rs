//! What messages say, by what it means: the same sentence comes from its author, from every compatible server, and from
//! every gateway. Each phrase is a piece of a sentence that a provider documents or sends; the comments say which.

pub(super) mod access;
pub(super) mod content;
pub(super) mod loose;
pub(super) mod overflow;
pub(super) mod quota;
pub(super) mod request;
pub(super) mod throttle;
