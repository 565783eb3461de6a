//! The shards of an interface that is open: each gets its share of the queues and the frames, and a thread.

use std::io;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rnic_engine::command::Command;
use rnic_engine::shard::{Rate, Shard, ShardConfig, ShardLimits, Siblings, UnknownFlowLimits};
use rnic_ipc::capture::Filter;
use rnic_steering::FloodLimits;
use rnic_xsk::{DevicePort, XskPort};

use super::super::OpenInterface;
use super::super::flows::Flows;
use super::{RING, ShardParts, host};
use crate::capture::{FILE_NUMBER, Tap};
use crate::runtime::Shards;
use crate::runtime::driver::{self, Drive, Driver, Engine, ThreadConfig};
use crate::{DeviceConfig, DeviceError, Limits, Runtime};

/// Addresses of a peer that have a flow each, at most (RFC 9260 section 5.1.2).
const FLOWS_PER_ASSOCIATION: usize = 8;

/// The shards of an interface while they are made.
struct Making<'m> {
    interface: &'m OpenInterface,
    config: &'m DeviceConfig,
    /// Where frames go that are to be written to a file.
    tap: Option<Tap>,
    /// The processor of each shard's thread, if it stays on one.
    cores: Vec<Option<u32>>,
}

/// Makes as many shards as there are processors for, each chosen or not. Queue n goes to shard n modulo their number.
pub(super) fn shards(
    interface: &OpenInterface,
    parts: ShardParts,
    tap: Option<Tap>,
) -> Result<Shards, DeviceError> {
    let count = parts.cores.len();
    let making = Making {
        interface,
        config: &interface.config,
        tap,
        cores: parts.cores,
    };
    let mut ports: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
    for (queue, port) in parts.queues.into_iter().enumerate() {
        ports[queue % count].push(port);
    }
    let mut siblings = making.siblings(count)?.into_iter();
    let mut flows = parts.flows.into_iter();
    let zero = Instant::now();
    let common_secret = secret()?;
    let mut engines = Vec::new();
    for ((number, ports), pool) in (0..).zip(ports).zip(parts.pool.shares(count)) {
        let config = ShardConfig {
            common_secret,
            ..making.shard_config(number, count)?
        };
        let begin = userspace_net::Instant::ZERO;
        let mut shard = match ports.is_empty() {
            true => Shard::loopback_only(config, parts.umem.clone(), pool, begin),
            false => Shard::new(config, pool, ports, begin),
        };
        if let Some(flows) = flows.next() {
            shard.set_flow_sink(Box::new(Flows(flows)));
        }
        if let Some(place) = siblings.next() {
            shard.join(place);
        }
        engines.push(making.engine(shard, (number, count), zero)?);
    }
    making.drive(engines).map_err(host("a thread for a shard"))
}

impl Making<'_> {
    /// The places of several shards among each other; one has no siblings.
    fn siblings(&self, shards: usize) -> Result<Vec<Siblings>, DeviceError> {
        if shards == 1 {
            return Ok(Vec::new());
        }
        let limits = shard_limits(&self.config.limits);
        let flows = limits.connections + FLOWS_PER_ASSOCIATION * limits.associations;
        Siblings::among(shards, flows, RING as usize, secret()?)
            .map_err(host("an eventfd for packets that are handed over"))
    }

    /// What the shard of this number is made with.
    fn shard_config(&self, number: u8, shards: usize) -> Result<ShardConfig, DeviceError> {
        let config = self.config;
        // A clock before 1970 only makes captures look odd.
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Ok(ShardConfig {
            tcp: userspace_tcp::Config {
                user_timeout: config.user_timeout,
                keepalive: config.keepalive,
                congestion: config.congestion,
                ..userspace_tcp::Config::default()
            },
            secret: secret()?,
            number: (self.interface.number, number),
            // What passive connections begin with.
            path_defaults: self.interface.interface().defaults,
            vlans: self.interface.vlans.clone(),
            limits: shard_limits(&config.limits),
            first_byte_timeout: config.first_byte_timeout,
            answer_timeout: config.answer_timeout,
            receive_wait: config.receive_wait,
            sctp_udp: config.sctp_udp,
            unknown_flows: match config.udp {
                Some(_) => unknown_flows(&config.flood_limits, shards),
                // The steering program bounds them.
                None => UnknownFlowLimits::default(),
            },
            receive_reserve: config.frames as usize / 4 / shards,
            unix_time_at_zero: unix.as_nanos() as u64,
            ..ShardConfig::default()
        })
    }

    /// The shard with its clock, which shows `zero` as time zero; what it sees goes to the file.
    fn engine(
        &self,
        shard: Shard<DevicePort<XskPort>>,
        (number, count): (u8, usize),
        zero: Instant,
    ) -> Result<Engine<DevicePort<XskPort>>, DeviceError> {
        let mut engine = Engine::new(shard, number, zero);
        if let Some(bond) = self
            .interface
            .members
            .as_ref()
            .filter(|members| members.is_bond)
        {
            let carry = bond.exits(number.into(), count, bond);
            let (answer, _) = engine.execute(Command::SetExits { carry }, &mut |_| {});
            answer.map_err(|error| host("the members of a bond")(io::Error::other(error)))?;
        }
        let Some(tap) = &self.tap else {
            return Ok(engine);
        };
        let show = Command::AddCapture {
            number: FILE_NUMBER,
            filter: Filter::default(),
            sink: Box::new(tap.clone()),
        };
        // The shard makes no events before its first client.
        let (answer, _) = engine.execute(show, &mut |_| {});
        answer.map_err(|error| DeviceError::BadConfig {
            what: "a capture",
            asked: format!("{:?}", self.config.capture),
            advice: error.to_string(),
        })?;
        Ok(engine)
    }

    /// Has the shards driven as the configuration says, from now on. Inline there is one.
    fn drive(&self, engines: Vec<Engine<DevicePort<XskPort>>>) -> io::Result<Shards> {
        let config = self.config;
        let mut drivers = Vec::new();
        let (sender, mut events) = driver::event_channel();
        for (engine, core) in engines.into_iter().zip(&self.cores) {
            let thread = ThreadConfig {
                core: *core,
                polling: config.polling,
                seccomp: config.seccomp,
            };
            match config.runtime {
                Runtime::Thread => {
                    drivers.push(Driver::threaded(engine, sender.clone(), thread)?);
                }
                Runtime::Caller => {
                    let (driver, its) = Driver::inline(Box::new(engine))?;
                    drivers.push(driver);
                    events = its;
                }
            }
        }
        Ok(Shards::new(drivers, events))
    }
}

/// A shard's part of what is let through.
fn unknown_flows(limits: &FloodLimits, shards: usize) -> UnknownFlowLimits {
    let part = |number: u32| number.div_ceil(shards as u32);
    let rate = |all: rnic_steering::Rate| Rate {
        per_second: part(all.per_second),
        burst: part(all.burst),
    };
    UnknownFlowLimits {
        inits: rate(limits.syns),
        others: rate(limits.unknown_flows),
    }
}

fn secret() -> Result<[u8; 16], DeviceError> {
    let mut secret = [0; 16];
    getrandom::fill(&mut secret).map_err(|error| DeviceError::Host {
        what: "random numbers",
        cause: std::io::Error::other(error),
    })?;
    Ok(secret)
}

/// The shard's tables hold what the PRM may grant.
fn shard_limits(limits: &Limits) -> ShardLimits {
    let device = &limits.device;
    ShardLimits {
        clients: limits.clients as usize,
        regions: device.regions as usize,
        cqs: device.completion_queues as usize,
        srqs: device.shared_receive_queues as usize,
        queue_pairs: device.queue_pairs as usize,
        listeners: device.listeners as usize,
        // Those in TIME-WAIT and those that wait for an answer come on top.
        connections: 2 * device.queue_pairs as usize,
        associations: device.queue_pairs as usize,
    }
}
