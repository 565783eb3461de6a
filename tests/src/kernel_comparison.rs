//! Our TCP against the kernel's, over the same links: who moves a byte stream faster, and whether
//! every byte arrives.
//!
//! Bytes go from the left host to the right one. A [`Cell`] is a link; measured on it are the kernel on
//! both ends, ours sending to the kernel, and the kernel sending to ours. The link has a rate that
//! is its bottleneck, whoever is at its ends.

pub mod cell;
pub mod kernel;
pub mod ours;
pub mod table;

use std::time::Duration;

use serde_json::Value;

use crate::lab::{Family, Host, Lab, LinkOptions, Namespace};
use crate::linksim::Linksim;
use cell::Cell;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoints {
    Kernel,
    /// Ours sends, the kernel receives.
    OursSends,
    /// The kernel sends, ours receives.
    OursReceives,
}

impl Endpoints {
    /// All, in the order in which they take turns.
    pub const ALL: [Self; 3] = [Self::Kernel, Self::OursSends, Self::OursReceives];
}

#[derive(Clone, Debug)]
pub struct Outcome {
    /// From the first moment of the connection to the last byte, at the kernel's receiving end if
    /// there is one.
    pub received: Option<Duration>,
    /// From the first moment of the connection to the receiver's end of stream, at the kernel's
    /// sending end if there is one.
    pub sent: Option<Duration>,
    pub link: Value,
    /// What our end counted, if it was there.
    pub ours: Option<Value>,
    /// Segments that arrived damaged, at the kernel's receiving end if there is one.
    pub kernel_checksum_errors: u64,
}

/// The two hosts and the link between them.
#[derive(Debug)]
pub struct TestBed {
    left: Host,
    middle: Namespace,
    right: Host,
    lab: Lab,
    next_port: u16,
    /// Of the stream that was sent last: rounds send the same one again.
    digest: Option<(kernel::Stream, kernel::Digest)>,
}

impl TestBed {
    /// Two hosts with everything between them but the link.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut lab = Lab::new(name);
        let (left, middle, right) = lab.over(&LinkOptions::default());
        for host in [&left, &right] {
            kernel::prepare(&host.namespace);
        }
        Self {
            left,
            middle,
            right,
            lab,
            next_port: 20_000,
            digest: None,
        }
    }

    #[must_use]
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Moves `bytes` bytes over a link of its own. Panics when they do not arrive as they were.
    pub fn run(
        &mut self,
        cell: &Cell,
        endpoints: Endpoints,
        family: Family,
        bytes: u64,
        seed: u64,
    ) -> Outcome {
        let stream = kernel::Stream { seed, bytes };
        let expected = self.digest(stream);
        for host in [&self.left, &self.right] {
            kernel::forget(&host.namespace);
        }
        // A port for each, so that no connection in TIME-WAIT is in the way.
        self.next_port += 1;
        let at = self.right.address(family, self.next_port);
        let options = cell.options(bytes, seed);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let link = Linksim::start(&self.middle, &options);
        let damaged = || kernel::checksum_errors(&self.right.namespace);
        let before = damaged();
        let (left, right) = (&self.left.namespace, &self.right.namespace);
        let (mut received, mut sent, mut ours) = (None, None, None);
        match endpoints {
            Endpoints::Kernel => {
                let receiver = kernel::receive(right, at, bytes);
                sent = Some(kernel::send(left, at, stream));
                received = Some(receiver.finish());
            }
            Endpoints::OursSends => {
                let receiver = kernel::receive(right, at, bytes);
                ours = Some(ours::send(left, self.lab.directory(), at, stream));
                received = Some(receiver.finish());
            }
            Endpoints::OursReceives => {
                let receiver = ours::receive(right, self.lab.directory(), at);
                sent = Some(kernel::send(left, at, stream));
                let (done, counters) = receiver.finish(bytes);
                assert_eq!(done, expected, "the stream changed on its way to ours");
                ours = Some(counters);
            }
        }
        if let Some(received) = &received {
            assert_eq!(received.digest, expected, "the stream changed on its way");
        }
        Outcome {
            received: received.map(|done| done.took),
            sent,
            link: link.stop(),
            ours,
            kernel_checksum_errors: damaged() - before,
        }
    }

    fn digest(&mut self, stream: kernel::Stream) -> kernel::Digest {
        match self.digest {
            Some((of, digest)) if of == stream => digest,
            _ => {
                let digest = stream.digest();
                self.digest = Some((stream, digest));
                digest
            }
        }
    }
}
