//! What `rnicctl` is made of: objects as rows for people and as JSON for programs, rates of counters,
//! captures as files, and how much each client moves.
//!
//! The JSON keys are the field names of [`rnic::admin`], which `docs/operations/watch.md` lists.

pub mod rates;
pub mod show;
pub mod table;
pub mod top;
pub mod trace;
