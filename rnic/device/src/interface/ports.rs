//! The ports of an interface: claimed from the kernel by the steering program, or the device's own.

use std::net::SocketAddr;

use rnic_host::ports::{Claims, LocalPort, PortSpace};
use rnic_ipc::control::Transport;
use rnic_steering::{Protocol, Steering};

use crate::{DeviceConfig, LoopbackUse};

/// What takes frames away from the kernel: the steering program, or nothing when there is none.
#[derive(Debug)]
pub(crate) struct Claimed(pub(crate) Option<Steering>);

impl Claims for Claimed {
    fn claim(&mut self, at: LocalPort) -> Result<(), String> {
        let local = at.local;
        let steering = self.0.as_mut().filter(|_| is_on_links(local));
        let Some(steering) = steering else {
            return Ok(());
        };
        steering
            .claim(protocol(at.transport), local.ip(), local.port())
            .map_err(|error| error.to_string())
    }

    fn release(&mut self, at: LocalPort) {
        let local = at.local;
        let steering = self.0.as_mut().filter(|_| is_on_links(local));
        let Some(steering) = steering else { return };
        let released = steering.release(protocol(at.transport), local.ip(), local.port());
        if let Err(error) = released {
            log::warn!("{local} can't be removed from the steering program: {error}");
        }
    }
}

fn protocol(transport: Transport) -> Protocol {
    match transport {
        Transport::Tcp => Protocol::Tcp,
        Transport::Sctp => Protocol::Sctp,
    }
}

/// Whether frames to this address may come over a link.
fn is_on_links(local: SocketAddr) -> bool {
    !local.ip().is_loopback()
}

/// A device without an interface shares its ports with no program of the host's.
pub(super) fn port_space(config: &DeviceConfig) -> PortSpace {
    match config.loopback {
        LoopbackUse::Only => PortSpace::Own,
        LoopbackUse::Off | LoopbackUse::Beside => PortSpace::Kernel,
    }
}
