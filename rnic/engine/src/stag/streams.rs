//! Which STags belong to which stream (RFC 5040 section 8.1.1, RFC 5041 section 8.2): a list through the
//! table's entries for each stream. The end of a queue pair then looks only at its own STags, and nothing is
//! allocated when work changes the list.

use rnic_ipc::id::QpNum;

use super::{Content, Entry, Memory, StagTable, State, User};

/// An STag's place in the list of its stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    qp: QpNum,
    /// The neighbours' indexes.
    before: Option<u32>,
    after: Option<u32>,
}

impl StagTable {
    /// A queue pair was made.
    pub fn stream_added(&mut self, user: User) {
        let streams = self.streams.entry(user.pd.0).or_insert(0);
        *streams = streams.saturating_add(1);
    }

    /// A queue pair is gone. What was of its stream can't be used any more, not by another queue pair
    /// of the same number either.
    pub fn stream_removed(&mut self, User { pd, qp }: User) {
        self.stream_ended(qp);
        if let Some(streams) = self.streams.get_mut(&pd.0) {
            *streams = streams.saturating_sub(1);
            if *streams == 0 {
                self.streams.remove(&pd.0);
            }
        }
    }

    /// A queue pair's stream has ended, and what was of it is not of the next one of the same queue
    /// pair (RFC 5040 section 8.1.1, 2).
    pub fn stream_ended(&mut self, qp: QpNum) {
        let mut next = self.first_of.remove(&qp.0);
        while let Some(index) = next {
            next = self.entries.get_mut(&index).and_then(|entry| {
                let link = entry.link.take();
                // Another shard's work may have made it another's since.
                if entry.stream() == Some(qp) {
                    entry.limit(None);
                    entry.invalidate();
                }
                link?.after
            });
        }
    }

    /// Nothing is reached through the STag until it is made valid again.
    pub(super) fn end_rights(&mut self, index: u32) {
        self.dissociate(index);
        if let Some(entry) = self.entries.get_mut(&index) {
            entry.invalidate();
        }
    }

    /// Limits an STag, which is of no stream, to one.
    pub(super) fn associate(&mut self, index: u32, qp: QpNum) {
        let after = self.first_of.insert(qp.0, index);
        if let Some(entry) = self.entries.get_mut(&index) {
            entry.link = Some(Link {
                qp,
                before: None,
                after,
            });
            entry.limit(Some(qp));
        }
        if let Some(link) = self.link(after) {
            link.before = Some(index);
        }
    }

    /// The STag is of no stream any more.
    pub(super) fn dissociate(&mut self, index: u32) {
        let entry = self.entries.get_mut(&index);
        let taken = entry.and_then(|entry| {
            entry.limit(None);
            entry.link.take()
        });
        let Some(Link { qp, before, after }) = taken else {
            return;
        };
        if let Some(link) = self.link(after) {
            link.before = before;
        }
        if let Some(link) = self.link(before) {
            link.after = after;
        } else if let Some(after) = after {
            self.first_of.insert(qp.0, after);
        } else {
            self.first_of.remove(&qp.0);
        }
    }

    fn link(&mut self, index: Option<u32>) -> Option<&mut Link> {
        self.entries.get_mut(&index?)?.link.as_mut()
    }
}

impl Entry {
    /// The only stream that may use it; without one all of the protection domain may.
    pub(super) fn stream(&self) -> Option<QpNum> {
        self.content.get().stream
    }

    fn limit(&self, stream: Option<QpNum>) {
        let content = self.content.get();
        self.content.set(Content { stream, ..content });
    }

    fn invalidate(&self) {
        let content = self.content.get();
        self.content.set(Content {
            state: State::Invalid,
            ..content
        });
        if let Some(view) = &self.view {
            view.invalidate();
        }
        if let Memory::Part { bound, .. } = &self.memory {
            bound.set(None);
        }
    }
}
