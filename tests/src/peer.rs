//! The peer that is not ours: a virtual machine with Linux's siw and rdma-core's tools, which
//! `tests/interop/build-image` makes.
//!
//! QEMU runs it on a tap of the lab, with KVM where that works and by emulation otherwise. It shares
//! one directory with the test: a command that it is to run is a file there, and so are the
//! command's output and exit code. A test whose peer does not come up fails and shows its console;
//! it is never skipped. Dropping a [`Peer`] kills its QEMU, and only that.

mod job;
mod machine;
pub mod verbs;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::lab::{Family, Lab, Outlet, Process};
use crate::wait;

pub use job::{Job, Ran};
use machine::Share;

/// How long the machine may take to come up by emulation, on cores that others use too.
const BOOT_LIMIT: Duration = Duration::from_secs(180);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerKernel {
    /// That of the Debian release that the tests run on.
    #[default]
    Stable,
    Backports,
}

#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// The driver and, for `siw_tunable`, what differs from its constants:
    /// `siw_tunable,peer_to_peer=1`.
    pub siw: String,
    pub kernel: PeerKernel,
    /// Processors. On several of them siw now and then takes an FPDU's payload into its CRC twice.
    pub processors: u32,
    /// What differs from a network card without offloads: `,gso=on`.
    pub network: String,
}

impl Default for PeerOptions {
    fn default() -> Self {
        Self {
            siw: "siw".into(),
            kernel: PeerKernel::default(),
            processors: 1,
            network: String::new(),
        }
    }
}

/// A running peer, with a siw on its end of the cable.
#[derive(Debug)]
pub struct Peer {
    process: Process,
    share: Arc<Share>,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

impl Peer {
    /// Boots a peer at the outlet and waits until it takes commands.
    #[must_use]
    pub fn boot(lab: &Lab, outlet: &Outlet, options: &PeerOptions) -> Self {
        let (process, share) = machine::boot(lab, outlet, &image(options.kernel), options);
        Self {
            process,
            share: Arc::new(share),
            v4: outlet.v4,
            v6: outlet.v6,
        }
    }

    #[must_use]
    pub fn address(&self, family: Family, port: u16) -> SocketAddr {
        let ip = match family {
            Family::V4 => IpAddr::V4(self.v4),
            Family::V6 => IpAddr::V6(self.v6),
        };
        SocketAddr::new(ip, port)
    }

    /// Starts a shell command in the peer.
    #[must_use]
    pub fn start(&self, command: &str) -> Job {
        Job::start(&self.share, command)
    }

    /// Runs a shell command in the peer to its end, for a minute at most.
    pub fn run(&self, command: &str) -> Ran {
        self.start(command).finish(Duration::from_secs(60))
    }

    /// Starts a command that will listen on a TCP port of the peer's, and waits until it does.
    #[must_use]
    pub fn listen(&self, port: u16, command: &str) -> Job {
        let job = self.start(command);
        // siw's listeners are sockets of the kernel's, which are listed as any other.
        let look = self.start(&format!(
            "until grep -qE ' [0-9A-F]+:{port:04X} [0-9A-F:]+ 0A ' /proc/net/tcp*; do sleep 0.02; done"
        ));
        let what = format!("`{command}` listens on port {port}");
        let _ = wait::until(&what, Duration::from_secs(60), || {
            if let Some(ran) = job.ended() {
                panic!("a server ended instead of listening: {ran}");
            }
            look.ended()
        });
        job
    }

    /// The directory that the peer has as `/host`, for files both ways.
    #[must_use]
    pub fn share(&self) -> PathBuf {
        self.share.directory().to_owned()
    }

    /// Panics if the machine has ended.
    #[track_caller]
    pub fn assert_alive(&mut self) {
        if let Some(status) = self.process.status() {
            panic!("the peer has ended: {status}\n{}", self.process.stderr());
        }
    }

    /// Pulls the plug: the machine is gone, and nobody is told.
    pub fn kill(&mut self) {
        self.process.kill();
    }
}

/// The directory of the image, which has to be of the present files.
fn image(kernel: PeerKernel) -> PathBuf {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/interop/build-image");
    let of = match kernel {
        PeerKernel::Stable => None,
        PeerKernel::Backports => Some("--backports"),
    };
    let found = Command::new(script)
        .arg("--find")
        .args(of)
        .output()
        .unwrap_or_else(|error| panic!("can't run {script}: {error}"));
    assert!(
        found.status.success(),
        "no peer to test with, and this is no test without one.\n{}",
        String::from_utf8_lossy(&found.stderr)
    );
    PathBuf::from(String::from_utf8_lossy(&found.stdout).trim_end())
}
