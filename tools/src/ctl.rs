//! What `rnicctl` is made of: objects as rows for people and as JSON for programs, rates of counters.
//!
//! The JSON keys are the field names of [`rnic::inspect`], which `docs/operations.md` lists.

pub mod rates;
pub mod show;
pub mod table;
