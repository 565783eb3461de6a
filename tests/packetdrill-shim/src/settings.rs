//! What `--so_flags` says: `key=value`, separated by commas.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use rnic_net::Path;
use userspace_tcp::{Config, CongestionControl};

/// Where packets go: there is no link, and so no address on it.
const SOURCE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// The longest delay of an ACK (RFC 1122 section 4.2.3.2), in milliseconds.
const ACK_DELAY_MAX: u64 = 500;

/// How the library is to behave.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    pub(crate) path: Path,
    /// The address that connections are made from when the socket has none.
    pub(crate) local_v4: IpAddr,
    pub(crate) local_v6: IpAddr,
}

impl Default for Settings {
    /// packetdrill's own addresses, and what its scripts expect of Linux where that is for a user of the stack to
    /// choose. That is window scale 8, ACKs at once as at the beginning of a connection, no pacing, no probing.
    fn default() -> Self {
        Self {
            config: Config {
                receive_window: 15 << 20,
                send_queue_segments: 4096,
                window_segments: 4096,
                connections: 1024,
                ack_delay: Duration::from_millis(1),
                pacing: false,
                path_mtu_probing: false,
                ..Config::default()
            },
            path: Path {
                src_mac: SOURCE_MAC,
                dst_mac: PEER_MAC,
                vlan: None,
                mtu: 1500,
                hop_limit: 64,
            },
            local_v4: Ipv4Addr::new(192, 168, 0, 1).into(),
            local_v6: Ipv6Addr::new(0xfd3d, 0xfa7b, 0xd17d, 0, 0, 0, 0, 1).into(),
        }
    }
}

impl Settings {
    /// Reads the flags; an error says which can't be read.
    pub(crate) fn parse(flags: &str) -> Result<Self, String> {
        let mut settings = Self::default();
        for flag in flags.split(',').map(str::trim).filter(|f| !f.is_empty()) {
            let (key, value) = flag.split_once('=').unwrap_or((flag, "on"));
            settings.set(key, value).ok_or_else(|| {
                format!("--so_flags: {flag:?} is no setting of this library; see its README")
            })?;
        }
        let mss = settings.path.mss(settings.local_v4);
        settings.config.mss = settings.config.mss.min(mss);
        Ok(settings)
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        let config = &mut self.config;
        match key {
            "timestamps" => config.timestamps = switch(value)?,
            "sack" => config.sack = switch(value)?,
            "window_scale" => config.window_scale = switch(value)?,
            "ecn" => config.ecn = switch(value)?,
            "pacing" => config.pacing = switch(value)?,
            "probing" => config.path_mtu_probing = switch(value)?,
            "window" => config.receive_window = value.parse().ok()?,
            "ack_delay_ms" => {
                let millis = value
                    .parse()
                    .ok()
                    .filter(|millis| *millis <= ACK_DELAY_MAX)?;
                config.ack_delay = Duration::from_millis(millis);
            }
            "syn_retries" => config.syn_retries = value.parse().ok()?,
            "cc" => {
                config.congestion = match value {
                    "cubic" => CongestionControl::Cubic,
                    "reno" => CongestionControl::NewReno,
                    "dctcp" => CongestionControl::Dctcp,
                    "bbr" => CongestionControl::Bbr,
                    _ => return None,
                }
            }
            "mtu" => {
                self.path.mtu = value
                    .parse()
                    .ok()
                    .filter(|mtu| (68..=65_535).contains(mtu))?;
                config.mss = self.path.mss(self.local_v4);
            }
            "local" => match value.parse().ok()? {
                address @ IpAddr::V4(_) => self.local_v4 = address,
                address @ IpAddr::V6(_) => self.local_v6 = address,
            },
            _ => return None,
        }
        Some(())
    }

    /// The address that a connection to `remote` is made from.
    pub(crate) fn local(&self, remote: IpAddr) -> IpAddr {
        if remote.is_ipv4() {
            self.local_v4
        } else {
            self.local_v6
        }
    }
}

fn switch(value: &str) -> Option<bool> {
    match value {
        "on" | "1" => Some(true),
        "off" | "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
