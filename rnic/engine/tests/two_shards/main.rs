//! Two shards in one process over a link in memory, under virtual time: the whole engine, from work
//! requests in rings to completions, through TCP and MPA and back.

#![allow(clippy::unwrap_used, clippy::too_many_arguments, missing_docs)]

mod allocations;
mod alone;
mod at_once;
mod backlog;
mod capture;
mod clock;
mod crowd;
mod fairness;
mod guessing;
mod hostile;
mod illegal;
#[path = "../shared/impairment.rs"]
mod impairment;
mod in_turn;
mod jumbo;
mod known_flows;
mod link;
mod markers;
mod moved;
mod nudge;
mod overflow;
mod packets;
mod quiet;
#[path = "../shared/random.rs"]
mod random;
mod raw;
mod recognised;
mod registration;
mod side;
mod silence;
mod small_peers;
mod startup;
mod states;
mod transfer;
mod world;
