//! The interface's link while it is open: the log has each change. Metrics, and messages about peers that do not
//! answer, say when it is down.

use std::sync::atomic::Ordering;

use rnic_host::Interface;
use rnic_host::link_state::Link;
use rnic_ipc::control::{DisconnectReason, Event, Refusal};

use super::super::{OpenInterface, Served};
use crate::refuse;

/// Reads the state of the link, and logs a change.
pub(super) fn update(served: &Served, interface: &Interface) {
    let link = Link::of(served.interface.netlink.as_ref(), interface);
    let before = served.interface.link.swap(link as u8, Ordering::AcqRel);
    let name = &interface.name;
    match (Link::from(before), link) {
        (before, now) if before == now => {}
        (_, Link::Up) => log::info!("interface {name} {link}"),
        _ => log::warn!(
            "interface {name} {link}: connections wait for it, no longer than their user_timeout"
        ),
    }
}

impl OpenInterface {
    /// The link, as it was when it last changed.
    pub(crate) fn known_link(&self) -> Link {
        self.link.load(Ordering::Acquire).into()
    }

    /// A refusal of a path over the interface, with what is wrong with the interface itself.
    pub(crate) fn with_link(&self, refusal: Refusal) -> Refusal {
        let interface = self.interface();
        let link = Link::of(self.netlink.as_ref(), &interface);
        match link.trouble(&interface.name) {
            Some(trouble) => refuse::refusal(refusal.code, &format!("{trouble} ({refusal})")),
            None => refusal,
        }
    }

    /// That a peer did not answer, with what is wrong with the interface.
    pub(crate) fn with_link_state(&self, mut event: Event) -> Event {
        if let Event::ConnectFailed {
            reason: DisconnectReason::TimedOut,
            message,
            ..
        }
        | Event::Disconnected {
            reason: DisconnectReason::TimedOut,
            message,
            ..
        } = &mut event
            && let Some(trouble) = self.known_link().trouble(&self.config.interface)
        {
            *message = format!("{message}; {trouble}");
        }
        event
    }
}
