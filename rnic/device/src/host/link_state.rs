//! Whether an interface has a link, and how fast it is (`/sys/class/net`). Both change while it is open.

use std::fs;

/// An interface's link as the kernel tells it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkState {
    /// It has a carrier; so have those of which the kernel does not say.
    pub(crate) up: bool,
    /// In Mbit/s; 0 where the kernel does not say.
    pub(crate) mbits: u32,
}

impl LinkState {
    /// Of an interface of this network namespace, or of none.
    pub(crate) fn of(interface: &str) -> Self {
        let told = |file: &str| {
            let text = fs::read_to_string(format!("/sys/class/net/{interface}/{file}")).ok()?;
            text.trim().parse::<i64>().ok()
        };
        Self {
            up: told("carrier") != Some(0),
            // -1 is unknown.
            mbits: told("speed")
                .and_then(|speed| speed.try_into().ok())
                .unwrap_or(0),
        }
    }
}
