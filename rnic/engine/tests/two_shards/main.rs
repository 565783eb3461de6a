//! Two shards in one process over a link in memory, under virtual time: the whole engine, from work
//! requests in rings to completions, through TCP and MPA and back.

#![allow(clippy::unwrap_used, clippy::too_many_arguments)]

mod allocations;
mod backlog;
mod broken_clients;
mod bulk_write;
mod capture;
mod clock;
mod deferred_ack;
mod exits;
mod fairness;
mod guessing;
mod half_open;
mod hand;
mod hostile;
mod hostile_sctp;
mod idle_poll;
mod illegal;
mod immediate_transmit;
#[path = "../shared/impairment.rs"]
mod impairment;
mod internal_links;
mod invalidate;
mod joined;
mod jumbo;
mod known_flows;
mod link;
mod loopback;
mod many_connections;
mod markers;
mod move_request;
mod overflow;
mod packets;
mod path_moves;
mod peer_rules;
mod peer_timeout;
mod predicted_headers;
#[path = "../shared/random.rs"]
mod random;
mod raw;
mod receive_wait;
mod registration;
mod rtr_retry;
mod sctp;
mod sctp_homes;
mod sctp_look;
#[path = "../shared/sctp_peer.rs"]
mod sctp_peer;
mod sctp_raw;
mod sctp_shared;
mod sctp_udp;
mod set_timeouts;
mod siblings;
mod side;
mod small_peers;
mod startup;
mod states;
mod transfer;
mod world;
