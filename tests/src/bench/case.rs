//! A benchmark case: a value that says what runs where, and a run of it.

use super::kernel::{self, Stream};
use super::many::{self, ManyRun};
use super::memory::{self, MemoryRun};
use super::perftest::{self, PerftestRun};
use super::place::{Link, Place};
use super::raw::{self, Load, RawPing};
use super::rnic::{self, RnicRun, RnicSource};
use super::running::{Running, Span};
use super::turns::Turns;
use super::{Figures, Testbed};

#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Frames over AF_XDP without an RNIC, as many as possible.
    RawRate(Load),
    /// One bare frame at a time.
    RawPing(RawPing),
    /// RDMA.
    Rnic(RnicRun),
    /// RDMA over many queue pairs.
    Many(ManyRun),
    /// perftest over the verbs library.
    Perftest(PerftestRun),
    /// A stream over the kernel's TCP.
    KernelStream(Stream),
    /// 64 bytes at a time over the kernel's TCP, both ends spinning.
    KernelPing,
    /// No kernel at all.
    Memory(MemoryRun),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Its name, for tables and `--only`: what it does, and where.
    pub name: String,
    /// Where; `None` for what needs no network.
    pub place: Option<Place>,
    pub work: Work,
}

impl Case {
    /// With its name made of the rest.
    #[must_use]
    pub fn new(place: Place, work: Work) -> Self {
        let name = match place.link {
            Link::Loopback => format!("loopback-{}", work.name()),
            _ => format!("{}@{place}", work.name()),
        };
        Self {
            name,
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
    pub fn unsupported(&self, testbed: &Testbed) -> Option<String> {
        match self.work {
            Work::Memory(_) if testbed.memory.is_none() => {
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
    pub fn run(&self, testbed: &mut Testbed) -> Result<Figures, String> {
        let Some(place) = self.place else {
            return match &self.work {
                Work::Memory(run) => {
                    let done = memory::run(testbed, run, testbed.duration())?;
                    Ok(done.figures())
                }
                _ => Err(format!("{} needs a place", self.name)),
            };
        };
        let _link = testbed.enter(place)?;
        match &self.work {
            Work::Many(run) => many::run(testbed, place, run),
            Work::Perftest(run) => perftest::run(testbed, place, *run),
            Work::KernelStream(stream) => kernel::stream(testbed, place, *stream),
            Work::Memory(_) => Err(format!("{} has no place", self.name)),
            Work::RawRate(_) | Work::RawPing(_) | Work::Rnic(_) | Work::KernelPing => {
                let span = Span::whole(testbed.duration_at(place));
                self.start(testbed, place, span)?.ended(testbed.limit())
            }
        }
    }

    /// With whom it takes [`turns`](super::turns), if it does.
    #[must_use]
    pub fn turns(&self) -> Option<Turns> {
        let cable = self.place.filter(|place| place.link == Link::Cable);
        let pings = || self.place.and_then(Turns::pings);
        match &self.work {
            Work::Memory(run) => Some(Turns::Memory { mtu: run.mtu }),
            Work::RawPing(_) | Work::KernelPing => pings(),
            Work::Rnic(run) if run.latency && run.rnic_source == RnicSource::Embedded => pings(),
            Work::RawRate(_) => cable.map(Turns::Streams),
            Work::Rnic(run) if run.takes_turns() => cable.map(Turns::Streams),
            _ => None,
        }
    }

    /// Starts it on hosts of its own, of the kind of its place.
    pub(super) fn start_beside(
        &self,
        testbed: &mut Testbed,
        cable: u8,
        span: Span,
    ) -> Result<Running, String> {
        let place = self.place;
        let place = place.ok_or_else(|| format!("{} needs a place", self.name))?;
        let place = Place { cable, ..place };
        testbed.enter(place)?;
        self.start(testbed, place, span)
    }

    /// Starts what is a client and a server, over daemons or none.
    fn start(&self, testbed: &mut Testbed, place: Place, span: Span) -> Result<Running, String> {
        match &self.work {
            Work::RawRate(load) => raw::rate(testbed, place, *load, span),
            Work::RawPing(ping) => raw::ping(testbed, place, *ping, span),
            Work::Rnic(run) => rnic::start(testbed, place, run, span),
            Work::KernelPing => kernel::ping(testbed, place, span),
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
            Self::RawPing(ping) => ping.name(),
            Self::Rnic(run) => run.name(),
            Self::Many(run) => run.name(),
            Self::Perftest(run) => run.name(),
            Self::KernelStream(stream) => stream.name().into(),
            Self::KernelPing => "kernel-ping".into(),
            Self::Memory(run) => run.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::turns::STREAM_TURN;
    use super::super::{Napi, matrix};
    use super::*;

    #[test]
    fn ping_pongs_streams_and_what_needs_no_network_take_turns_among_themselves() {
        let all = matrix::full();
        let with = |turns| {
            let those = all.iter().filter(|one| one.turns() == Some(turns));
            those.map(|one| one.name.as_str()).collect::<Vec<_>>()
        };
        let pings = [
            "raw-ping@1500-inline",
            "write-64-ping-embedded@1500-inline",
            "kernel-ping@1500-inline",
            "raw-ping-64@1500-inline",
            "send-64-ping-embedded@1500-inline",
            "read-64-ping-embedded@1500-inline",
            "write-64-ping-sctp-embedded@1500-inline",
        ];
        let inline = Place::cable(1500, Napi::Inline);
        assert_eq!(with(Turns::Pings(inline)), pings);
        let streams = [
            "raw@1500-rps",
            "raw-verified@1500-rps",
            "write-1M-embedded@1500-rps",
            "write-1M-markers-embedded@1500-rps",
            "write-64k-embedded@1500-rps",
            "write-64k-daemon@1500-rps",
            "write-64k-daemon-event@1500-rps",
        ];
        let rps = Place::cable(1500, Napi::Rps);
        assert_eq!(with(Turns::Streams(rps)), streams);
        let loopback = ["write-64-ping-embedded", "kernel-ping"];
        let loopback = loopback.map(|name| format!("loopback-{name}"));
        assert_eq!(with(Turns::Pings(Place::loopback())), loopback);
        let memory = ["engine-1M@3506", "bare-3466@3506", "verified-3466@3506"];
        let memory = memory.map(|name| format!("memory-{name}"));
        assert_eq!(with(Turns::Memory { mtu: 3506 }), memory);
    }

    #[test]
    fn who_stops_itself_is_back_before_its_retransmission_timer() {
        // The least one (RFC 6298 section 2.4 as TCP here has it), behind which a window starts over.
        let timer = Duration::from_millis(200);
        let all = matrix::full();
        for place in all.iter().filter_map(|one| one.place) {
            let with = |one: &&Case| one.turns() == Some(Turns::Streams(place));
            let others = all.iter().filter(with).count().saturating_sub(1);
            let away = STREAM_TURN / 3 * 4 * u32::try_from(others).unwrap_or(u32::MAX);
            assert!(away + away / 4 < timer, "{others} others at {place}");
        }
    }
}
