//! Who competes: a value that says what runs where, and a run of it.

use std::time::Duration;

use super::kernel::{self, Stream};
use super::many::{self, ManyRun};
use super::memory::{self, MemoryRun};
use super::place::Place;
use super::raw::{self, Load};
use super::rnic::{self, Door, RnicRun};
use super::running::Running;
use super::turns::Turns;
use super::{Figures, Ground};

/// What runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Frames over AF_XDP without an RNIC, as many as possible.
    RawRate(Load),
    /// One bare frame of 64 octets at a time, so many KiB of other code run through behind each.
    RawPing(u32),
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
                Work::Memory(run) => {
                    let done = memory::run(ground, run, ground.duration())?;
                    Ok(done.figures())
                }
                _ => Err(format!("{} needs a place", self.name)),
            };
        };
        let _link = ground.enter(place)?;
        match &self.work {
            Work::RawRate(load) => raw::rate(ground, place, *load),
            Work::Rnic(run) if let Door::Daemon(polling) = run.door => {
                rnic::daemons(ground, place, run, polling)
            }
            Work::Many(run) => many::run(ground, place, run),
            Work::KernelStream(stream) => kernel::stream(ground, place, *stream),
            Work::Memory(_) => Err(format!("{} has no place", self.name)),
            Work::RawPing(_) | Work::Rnic(_) | Work::KernelPing => {
                let duration = ground.duration_at(place);
                self.start(ground, place, duration)?.ended(ground.limit())
            }
        }
    }

    /// With whom it takes [`turns`](super::turns): where each message is measured by itself, and nothing
    /// is at work but its two ends; and where one program alone is.
    #[must_use]
    pub fn turns(&self) -> Option<Turns> {
        let ping = match &self.work {
            Work::RawPing(_) | Work::KernelPing => true,
            Work::Rnic(run) => run.latency && run.door == Door::Embedded,
            Work::Memory(run) => return Some(Turns::Memory { mtu: run.mtu }),
            _ => false,
        };
        let place = self.place.filter(|place| place.leaves_cores_alone());
        place.filter(|_| ping).map(Turns::Pings)
    }

    /// Starts it on hosts of its own, of the kind of its place.
    pub(super) fn start_beside(
        &self,
        ground: &mut Ground,
        cable: u8,
        duration: Duration,
    ) -> Result<Running, String> {
        let place = self.place;
        let place = place.ok_or_else(|| format!("{} needs a place", self.name))?;
        let place = Place { cable, ..place };
        ground.enter(place)?;
        self.start(ground, place, duration)
    }

    /// Starts what is a client and a server and nothing else.
    fn start(
        &self,
        ground: &mut Ground,
        place: Place,
        duration: Duration,
    ) -> Result<Running, String> {
        match &self.work {
            Work::RawPing(code) => raw::ping(ground, place, *code, duration),
            Work::Rnic(run) => rnic::embedded(ground, place, run, duration),
            Work::KernelPing => kernel::ping(ground, place, duration),
            _ => Err(format!("{} is more than two programs", self.name)),
        }
    }
}

impl Work {
    /// The first part of a name.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::RawRate(load) => load.name().into(),
            Self::RawPing(0) => "raw-ping".into(),
            Self::RawPing(code) => format!("raw-ping-code-{code}k"),
            Self::Rnic(run) => run.name(),
            Self::Many(run) => run.name(),
            Self::KernelStream(stream) => stream.name().into(),
            Self::KernelPing => "kernel-ping".into(),
            Self::Memory(run) => run.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Napi, matrix};
    use super::*;

    #[test]
    fn ping_pongs_of_two_programs_that_have_their_cores_take_turns_and_nobody_else() {
        let all = matrix::full();
        let with = |turns| {
            let those = all.iter().filter(|one| one.turns() == Some(turns));
            those.map(|one| one.name.as_str()).collect::<Vec<_>>()
        };
        let pings = [
            "raw-ping@1500-inline",
            "write-64-ping-embedded@1500-inline",
            "kernel-ping@1500-inline",
            "raw-ping-code-16k@1500-inline",
            "send-64-ping-embedded@1500-inline",
            "read-64-ping-embedded@1500-inline",
        ];
        let inline = Place::cable(1500, Napi::Inline);
        assert_eq!(with(Turns::Pings(inline)), pings);
        let memory = ["engine-1M@3506", "bare-3466@3506", "verified-3466@3506"];
        let memory = memory.map(|name| format!("memory-{name}"));
        assert_eq!(with(Turns::Memory { mtu: 3506 }), memory);
        let others = all.iter().filter(|one| one.turns().is_some()).count();
        let short = with(Turns::Memory { mtu: 1500 }).len();
        assert_eq!(others, pings.len() + memory.len() + short);
    }
}
