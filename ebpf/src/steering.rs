//! Steering of one interface: the attached program and what it may take.

use std::fmt;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::attach::{self, Mode, ModePreference};
use crate::claim::Protocol;
use crate::error::SteeringError;
use crate::flood::{FloodLimits, KnownFlows};
use crate::icmp::{self, IpVersion};
use crate::program::{MAX_DEVICES, Program};

/// What the program is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteeringConfig {
    /// What is claimed and beyond these is dropped.
    pub limits: FloodLimits,
    /// The local UDP port whose packets are SCTP's (RFC 6951): what is claimed for SCTP is taken from there, too.
    pub sctp_udp_port: Option<u16>,
}

impl SteeringConfig {
    /// No limits, and no SCTP in UDP.
    pub const UNLIMITED: Self = Self {
        limits: FloodLimits::NONE,
        sctp_udp_port: None,
    };
}

/// The steering program on one interface. Dropping it detaches the program, and so does the end
/// of the process.
pub struct Steering {
    program: Program,
    interface: String,
    mode: Mode,
    /// The program is attached as long as these are open.
    _links: Vec<OwnedFd>,
}

impl Steering {
    /// Attaches the program to an interface of the calling thread's network namespace. It takes
    /// nothing until a queue has a socket and a triple is claimed. One line in the log says which
    /// mode it runs in and, if that is not the best one, why.
    ///
    /// # Errors
    ///
    /// [`SteeringError`] when the interface, its driver or the process's privileges do not allow
    /// any of the modes asked for.
    pub fn attach(
        interface: &str,
        preference: ModePreference,
        config: &SteeringConfig,
    ) -> Result<Steering, SteeringError> {
        let program = Program::open(interface, &[], config)?;
        Self::of(program, interface, &[interface], preference)
    }

    /// Attaches the program to the members of a bond, to all in the same mode. Otherwise as [`Self::attach`].
    ///
    /// # Errors
    ///
    /// As there, and when there are more than [`MAX_DEVICES`](crate::MAX_DEVICES).
    pub fn attach_bond(
        bond: &str,
        members: &[&str],
        preference: ModePreference,
        config: &SteeringConfig,
    ) -> Result<Steering, SteeringError> {
        if members.len() > MAX_DEVICES {
            return Err(SteeringError::TooManyDevices {
                interface: bond.to_owned(),
                found: members.len(),
                most: MAX_DEVICES,
            });
        }
        let program = Program::open(bond, &attach::indexes(members)?, config)?;
        Self::of(program, bond, members, preference)
    }

    fn of(
        mut program: Program,
        interface: &str,
        devices: &[&str],
        preference: ModePreference,
    ) -> Result<Steering, SteeringError> {
        let (links, mode) = attach::attach(&mut program, interface, devices, preference)?;
        Ok(Steering {
            program,
            interface: interface.to_owned(),
            mode,
            _links: links,
        })
    }

    /// The mode that the program runs in.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Gives claimed frames that arrive on receive queue `queue` to an AF_XDP socket, which must
    /// be bound to that queue. `device` is the number of the bond's member, in the order in which they were given, and
    /// 0 without a bond. The kernel forgets it when the socket closes; claimed frames that
    /// arrive on a queue without a socket pass.
    ///
    /// # Errors
    ///
    /// When the queue is not below [`MAX_QUEUES`](crate::MAX_QUEUES), or the kernel refuses.
    pub fn set_queue(
        &mut self,
        device: usize,
        queue: u32,
        socket: BorrowedFd<'_>,
    ) -> Result<(), SteeringError> {
        self.program.set_queue(device, queue, socket)
    }

    /// Takes frames for `(protocol, address, port)` from now on. Claiming again changes nothing.
    ///
    /// # Errors
    ///
    /// When no frame could match, the table is full, or the kernel refuses.
    pub fn claim(
        &mut self,
        protocol: Protocol,
        address: IpAddr,
        port: u16,
    ) -> Result<(), SteeringError> {
        self.program.claim(protocol, address, port)
    }

    /// Lets frames for the triple pass from now on. Nothing happens when it was not claimed.
    ///
    /// # Errors
    ///
    /// When it could never be claimed, or the kernel refuses.
    pub fn release(
        &mut self,
        protocol: Protocol,
        address: IpAddr,
        port: u16,
    ) -> Result<(), SteeringError> {
        self.program.release(protocol, address, port)
    }

    /// A raw socket, not blocking, that gets copies of the ICMP or ICMPv6 errors that quote a TCP
    /// segment or an SCTP packet from a claimed address and port. Who sent them is not known. What comes while its
    /// queue is full is lost.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the socket (CAP_NET_RAW) or its filter.
    pub fn icmp_errors(&mut self, version: IpVersion) -> Result<OwnedFd, SteeringError> {
        icmp::open(&mut self.program, &self.interface, version)
    }

    /// The table of flows that are not limited, for the one who knows them. It is empty, and stays
    /// usable, without effect, when the program is gone.
    ///
    /// # Errors
    ///
    /// When the kernel does not map it.
    pub fn known_flows(&self) -> Result<KnownFlows, SteeringError> {
        self.program.known_flows()
    }

    /// How many frames were taken, how many passed and how many were dropped, for which reason, since
    /// attaching; and how many ICMP errors were taken.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.program.counters()
    }
}

impl fmt::Debug for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steering")
            .field("interface", &self.interface)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}
