//! Who competes: a value that says what runs where, and a run of it.

use super::kernel::{self, Stream};
use super::many::{self, ManyRun};
use super::memory::{self, MemoryRun};
use super::place::Place;
use super::raw::{self, Load};
use super::rnic::{self, Door, RnicRun};
use super::{Figures, Ground};

/// What runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Frames over AF_XDP without an RNIC, as many as possible.
    RawRate(Load),
    /// One bare frame of 64 octets at a time.
    RawPing,
    /// RDMA.
    Rnic(RnicRun),
    /// RDMA over many queue pairs.
    Many(ManyRun),
    /// A stream over the kernel's TCP.
    KernelStream(Stream),
    /// 64 octets at a time over the kernel's TCP, both ends spinning.
    KernelPing,
    /// No kernel at all.
    Memory(MemoryRun),
}

/// One that competes.
#[derive(Clone, Debug, PartialEq)]
pub struct Contestant {
    /// Its name, for tables and `--only`: what it does, and where.
    pub name: String,
    /// Where; `None` for what needs no network.
    pub place: Option<Place>,
    /// What.
    pub work: Work,
}

impl Contestant {
    /// With its name made of the rest.
    #[must_use]
    pub fn new(place: Place, work: Work) -> Self {
        Self {
            name: format!("{}@{place}", work.name()),
            place: Some(place),
            work,
        }
    }

    /// One that needs no network.
    #[must_use]
    pub fn alone(work: Work) -> Self {
        Self {
            name: work.name(),
            place: None,
            work,
        }
    }

    /// Why it can't run here, when that is known before.
    #[must_use]
    pub fn unsupported(&self, ground: &Ground) -> Option<String> {
        match self.work {
            Work::Memory(_) if ground.memory.is_none() => {
                Some("not measured: the benchmark of rnic-engine was not built (--memory)".into())
            }
            _ => None,
        }
    }

    /// Runs it once.
    ///
    /// # Errors
    ///
    /// What failed, with what the program said.
    pub fn run(&self, ground: &mut Ground) -> Result<Figures, String> {
        let Some(place) = self.place else {
            return match &self.work {
                Work::Memory(run) => memory::run(ground, run),
                _ => Err(format!("{} needs a place", self.name)),
            };
        };
        let _link = ground.enter(place)?;
        match &self.work {
            Work::RawRate(load) => raw::rate(ground, place, *load),
            Work::RawPing => raw::ping(ground, place),
            Work::Rnic(run) => match run.door {
                Door::Embedded => rnic::embedded(ground, place, run),
                Door::Daemon(polling) => rnic::daemons(ground, place, run, polling),
            },
            Work::Many(run) => many::run(ground, place, run),
            Work::KernelStream(stream) => kernel::stream(ground, place, *stream),
            Work::KernelPing => kernel::ping(ground, place),
            Work::Memory(run) => memory::run(ground, run),
        }
    }
}

impl Work {
    /// The first part of a name.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::RawRate(load) => load.name().into(),
            Self::RawPing => "raw-ping".into(),
            Self::Rnic(run) => run.name(),
            Self::Many(run) => run.name(),
            Self::KernelStream(stream) => stream.name().into(),
            Self::KernelPing => "kernel-ping".into(),
            Self::Memory(run) => run.name(),
        }
    }
}
