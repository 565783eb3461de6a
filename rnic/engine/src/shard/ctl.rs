//! What is no data path: commands ([`control`]), a connection's start-up and its end ([`startup`],
//! [`lifecycle`], with [`markers`], [`rtr_retry`], [`peer_timeout`] and [`deadlines`]), bounds for peers
//! ([`backlog`], [`unowned`], [`guesses`]), memory that is gone ([`memory_fault`]), and what can be looked at
//! ([`inspect`]).

pub(super) mod backlog;
pub(super) mod control;
pub(super) mod deadlines;
pub(super) mod guesses;
pub(super) mod inspect;
pub(super) mod lifecycle;
pub(super) mod markers;
pub(super) mod memory_fault;
pub(super) mod modify;
pub(super) mod path;
pub(super) mod peer_timeout;
pub(super) mod rtr_retry;
pub(super) mod startup;
pub(super) mod unowned;
