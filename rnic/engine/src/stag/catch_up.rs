//! Taking over what work of another shard has made of an STag, when somebody asks for it here.

use super::bind::Bound;
use super::word::{Part, View, WordState};
use super::{Content, Entry, Memory, StagTable, State};

impl StagTable {
    /// An entry, as it is after what other shards' work has done to the STag.
    #[inline(always)]
    pub(super) fn present<'a>(&self, entry: &'a Entry) -> &'a Entry {
        if let Some(view) = entry.view.as_ref().filter(|view| view.is_behind()) {
            self.catch_up(entry, view);
        }
        entry
    }

    #[cold]
    #[inline(never)]
    pub(super) fn catch_up(&self, entry: &Entry, view: &View) {
        let (word, key, rights) = match view.state() {
            WordState::Valid { word, key, rights } => (word, key, rights),
            WordState::Invalid { word } => {
                view.has_seen(word);
                return entry.gives_nothing();
            }
            WordState::Changing => return entry.gives_nothing(),
        };
        match (&entry.memory, rights.part) {
            // What was bound to the registration before is bound to nothing any more.
            (Memory::Own(own), None) => own.serial.set(self.take_serial()),
            (Memory::Part { bound, .. }, Some(part)) => bound.set(self.bound(part)),
            // An STag stays of its kind.
            _ => return,
        }
        entry.content.set(Content {
            key,
            key_used: true,
            state: State::Valid,
            access: rights.access,
            base: rights.base,
            len: rights.len,
            stream: rights.stream,
        });
        view.has_seen(word);
    }

    /// A part of a region, if the region still has the registration that is meant.
    fn bound(&self, part: Part) -> Option<Bound> {
        let region = self.present(self.entries.get(&part.region)?);
        let Memory::Own(own) = &region.memory else {
            return None;
        };
        let is_meant = region.view.as_ref().map(View::word) == Some(part.word);
        is_meant.then(|| Bound {
            region: part.region,
            serial: own.serial.get(),
            start: part.start,
        })
    }
}

impl Entry {
    /// It is not valid, and no stream's any more.
    fn gives_nothing(&self) {
        self.content.set(Content {
            state: State::Invalid,
            stream: None,
            ..self.content.get()
        });
    }
}
