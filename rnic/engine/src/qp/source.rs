//! Where the next message comes from.

/// The two sources of messages, which take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Work,
    /// The peer's requests.
    Responses,
}

/// There is no message: the stream has failed instead, and there may be a Terminate to send.
pub(super) struct Failed;
