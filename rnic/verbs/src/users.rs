//! Which objects are still used by others, and so must not be destroyed.

use std::sync::Arc;

use rustix::io::Errno;

use crate::ffi::{Fail, Outcome};

/// Counts the objects that a program made with another one and has not destroyed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Users(Arc<()>);

/// One of them; dropping it ends that.
#[derive(Debug)]
pub(crate) struct Use(#[expect(dead_code, reason = "what counts is that it is there")] Arc<()>);

impl Users {
    pub(crate) fn add(&self) -> Use {
        Use(self.0.clone())
    }

    /// That there is none; `what` goes into the failure.
    pub(crate) fn check_none(&self, what: &str) -> Outcome<()> {
        match Arc::strong_count(&self.0) {
            1 => Ok(()),
            _ => Err(Fail::of(Errno::BUSY, format!("{what} is still used"))),
        }
    }
}
