//! The transmit path: what queue pairs have to send becomes segments, and those become frames.
//!
//! Clients and their connections take turns ([`drr_scheduler`]), within the window of all connections to a
//! peer ([`macroflow`]). In its turn a connection produces ([`produce`], [`quantum`]) as many segments as
//! windows, frames and the link allow; one that nobody else competes with has it at once ([`immediate`]).
//! TCP gives what may leave, as bursts behind one header ([`header_cache`]), to the ports ([`link`]); what
//! its path has become too narrow for goes in [`fragments`].

pub(super) mod drr_scheduler;
pub(super) mod fragments;
pub(super) mod header_cache;
pub(super) mod immediate;
pub(super) mod link;
pub(super) mod macroflow;
pub(super) mod produce;
pub(super) mod quantum;
