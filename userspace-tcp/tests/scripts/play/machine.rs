//! Runs a script's steps against a [`Host`] under virtual time.
//!
//! The clock stops at every deadline of the host, and the host is asked for segments after every
//! input and every deadline. What came out and was not expected stops the script before the clock
//! or an input moves on: nothing is passed over.

mod act;
mod compare;
mod expect;
mod peer;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use userspace_net::{Endpoint, FourTuple, Instant};
use userspace_tcp::{Event, Payload, Received, SoftError, Stack};

use crate::host::{Host, SECRET};
use crate::syntax::{Action, Happening, Script, Settings, Step, When};
use crate::wire::Wire;
use peer::Peer;

/// Segments that may come out in one instant; more never end.
const BURST_MAX: usize = 20_000;

/// Times that a deadline may come without the clock moving; more never end.
const STANDSTILL_MAX: usize = 1_000;

/// Why a script does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Index of the step; one too far when it is the end that fails.
    pub step: usize,
    pub expected: String,
    pub got: String,
}

#[derive(Debug)]
pub struct Outcome {
    pub failure: Option<Failure>,
    /// Everything that was on the wire and that happened, one line each.
    pub wire: Vec<String>,
}

/// What is wrong: expected and got.
type Wrong = (String, String);

/// A segment that came out.
#[derive(Debug)]
struct Sent {
    at: Instant,
    peer: u16,
    wire: Wire,
}

pub struct Machine<'a, H: Host> {
    script: &'a Script,
    host: H,
    start: Instant,
    now: Instant,
    /// Of the last step: relative times count from it.
    reference: Instant,
    peers: BTreeMap<u16, Peer<H::Conn>>,
    names: HashMap<H::Conn, u16>,
    sent: VecDeque<Sent>,
    events: VecDeque<(Instant, u16, Happening)>,
    received: Received,
    with_link: Vec<(H::Conn, Payload<u32>)>,
    link_holds: bool,
    buffers: u32,
    buffers_back: u32,
    log: Vec<String>,
    broken: Option<String>,
}

pub fn run<H: Host>(script: &Script) -> Outcome {
    let mut machine = Machine::<H>::new(script);
    let failure = machine.all().err();
    Outcome {
        failure,
        wire: machine.log,
    }
}

/// Our address and port.
pub fn local(ipv6: bool) -> Endpoint {
    Endpoint::new(address(ipv6, 1), 7000)
}

fn address(ipv6: bool, host: u8) -> IpAddr {
    if ipv6 {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(host)).into()
    } else {
        Ipv4Addr::new(198, 18, 0, host).into()
    }
}

/// The ends of the connection with peer number `peer`.
fn tuple(settings: &Settings, peer: u16) -> FourTuple {
    let remote = Endpoint::new(address(settings.ipv6, 2), 40_000 + peer);
    FourTuple::new(local(settings.ipv6), remote)
}

/// When to begin so that a connection opened then has the ISS that is asked for: RFC 6528 adds a
/// clock of 4 microseconds to it.
fn start(settings: &Settings) -> Instant {
    let Some(wanted) = settings.iss else {
        return Instant::ZERO + Duration::from_secs(1);
    };
    let mut stack: Stack<u32> = Stack::new(settings.stack.clone(), SECRET, Instant::ZERO);
    let options = userspace_tcp::ConnOptions { mss: 1460 };
    let connected = stack.connect(Instant::ZERO, tuple(settings, 0), options);
    connected.expect("the first connection of a stack");
    let syn = stack.poll_transmit(Instant::ZERO).expect("a SYN");
    let ticks = u64::from(wanted.wrapping_sub(syn.header.seq.0));
    Instant::from_nanos(ticks * 4_000)
}

impl<'a, H: Host> Machine<'a, H> {
    fn new(script: &'a Script) -> Self {
        let start = start(&script.settings);
        Self {
            script,
            host: H::new(script, start),
            start,
            now: start,
            reference: start,
            peers: BTreeMap::new(),
            names: HashMap::new(),
            sent: VecDeque::new(),
            events: VecDeque::new(),
            received: Received::default(),
            with_link: Vec::new(),
            link_holds: false,
            buffers: 0,
            buffers_back: 0,
            log: Vec::new(),
            broken: None,
        }
    }

    fn all(&mut self) -> Result<(), Failure> {
        let script = self.script;
        for (index, step) in script.steps.iter().enumerate() {
            let mut next = script.steps[index + 1..].iter();
            let next = next.find(|step| !step.action.is_look());
            let together = next.is_some_and(|next| next.when == When::Together);
            let result = self.step(step, together);
            let result = result.and_then(|()| self.lawful());
            result.map_err(|(expected, got)| Failure {
                step: index,
                expected,
                got,
            })?;
        }
        self.host.script_is_over();
        let end = self.drain();
        let end = end.and_then(|()| self.nothing_pending("the end of the script"));
        let end = end.and_then(|()| self.finish());
        end.map_err(|(expected, got)| Failure {
            step: script.steps.len(),
            expected,
            got,
        })
    }

    /// `together`: the next step is to happen before the stack is asked for segments.
    fn step(&mut self, step: &Step, together: bool) -> Result<(), Wrong> {
        let (from, to) = match step.when {
            When::Together => (self.now, self.now),
            When::Relative { from, to } => (self.reference + from, self.reference + to),
            When::Absolute { from, to } => (self.start + from, self.start + to),
        };
        let late = to + self.script.settings.tolerance;
        if to < self.now {
            let expected = "a time that has not passed".to_owned();
            return Err((expected, format!("{} has passed", self.clock(to))));
        }
        match &step.action {
            Action::Expect(line) => return self.expect((from, late), step.peer, line),
            Action::Happens(_) if !H::TELLS => {
                self.run_to(from)?;
                self.reference = from;
                return Ok(());
            }
            Action::Happens(what) => return self.happens((from, late), step.peer, what),
            _ => {}
        }
        if step.when != When::Together && (from > self.now || step.action.is_input()) {
            self.nothing_pending("nothing more before this line")?;
            self.run_to(from)?;
            self.nothing_pending("nothing before this line's time")?;
        }
        self.reference = from;
        match &step.action {
            Action::Inject(line) => self.inject(step.peer, line)?,
            Action::Call(call) => self.call(step.peer, call)?,
            Action::Ask(_) | Action::Shown(_) if !H::TELLS => return Ok(()),
            Action::Ask(question) => return self.ask(step.peer, question),
            Action::Shown(shown) => return self.shown(step.peer, shown),
            Action::Expect(_) | Action::Happens(_) => {}
        }
        if !together {
            self.drain()?;
        }
        Ok(())
    }

    /// Lets time pass to `to`, or to the first thing that comes out.
    fn run_until_something(&mut self, to: Instant) -> Result<(), Wrong> {
        let mut standstill = 0;
        while self.sent.is_empty() && self.events.is_empty() {
            let deadline = self.host.next_deadline().filter(|&at| at <= to);
            let Some(deadline) = deadline else {
                self.now = self.now.max(to);
                return Ok(());
            };
            standstill = if deadline > self.now {
                0
            } else {
                standstill + 1
            };
            if standstill > STANDSTILL_MAX {
                let got = format!("a deadline at {} that never passes", self.clock(deadline));
                return Err(("time to pass".to_owned(), got));
            }
            self.now = self.now.max(deadline);
            self.host.advance(self.now);
            self.drain()?;
        }
        Ok(())
    }

    fn run_to(&mut self, to: Instant) -> Result<(), Wrong> {
        self.run_until_something(to)
    }

    /// Takes everything that comes out now.
    fn drain(&mut self) -> Result<(), Wrong> {
        self.take_events();
        for _ in 0..BURST_MAX {
            let Some(leaving) = self.host.next_segment(self.now) else {
                while self.host.next_released() {
                    self.buffers_back += 1;
                }
                self.take_events();
                return self.lawful();
            };
            self.transmit(leaving);
        }
        let got = format!("{BURST_MAX} segments in one instant");
        Err(("an end of sending".to_owned(), got))
    }

    fn take_events(&mut self) {
        while let Some((conn, event)) = self.host.next_event() {
            if let Event::Incoming { tuple, .. } = event {
                let peer = tuple.remote.port.wrapping_sub(40_000);
                self.name(conn, peer);
            }
            let peer = self.names.get(&conn).copied().unwrap_or(u16::MAX);
            let what = happening(event);
            self.note(&format!("! {}{}", describe(&what), suffix(peer)));
            self.events.push_back((self.now, peer, what));
        }
    }

    fn name(&mut self, conn: H::Conn, peer: u16) {
        self.names.insert(conn, peer);
        self.peer(peer).conn = Some(conn);
    }

    fn peer(&mut self, number: u16) -> &mut Peer<H::Conn> {
        let irs = self.script.settings.irs;
        self.peers.entry(number).or_insert_with(|| Peer::new(irs))
    }

    fn nothing_pending(&self, expected: &str) -> Result<(), Wrong> {
        if let Some(sent) = self.sent.front() {
            let got = format!("{} > {}", self.clock(sent.at), self.print(sent));
            return Err((expected.to_owned(), got));
        }
        self.no_events(expected)
    }

    fn no_events(&self, expected: &str) -> Result<(), Wrong> {
        match self.events.front() {
            Some((at, peer, what)) => {
                let got = format!("{} ! {}{}", self.clock(*at), describe(what), suffix(*peer));
                Err((expected.to_owned(), got))
            }
            None => Ok(()),
        }
    }

    fn lawful(&mut self) -> Result<(), Wrong> {
        match self.broken.take() {
            Some(law) => Err(("what holds of every connection".to_owned(), law)),
            None => Ok(()),
        }
    }

    /// Everything that was handed over has to come back.
    fn finish(&mut self) -> Result<(), Wrong> {
        self.link_returns();
        if !H::TELLS {
            return Ok(());
        }
        let conns: Vec<H::Conn> = self.names.keys().copied().collect();
        for conn in conns {
            self.host.abort(self.now, conn);
        }
        self.drain()?;
        if self.buffers_back == self.buffers {
            return Ok(());
        }
        let expected = format!("{} buffers back", self.buffers);
        Err((expected, format!("{} came back", self.buffers_back)))
    }

    fn print(&self, sent: &Sent) -> String {
        let peer = self.peers.get(&sent.peer);
        let (iss, irs) = peer.map_or((0, 0), |peer| (peer.iss.unwrap_or(0), peer.irs));
        format!("{}{}", sent.wire.print(iss, irs), suffix(sent.peer))
    }

    /// Since the start, in seconds.
    fn clock(&self, at: Instant) -> String {
        let nanos = at.saturating_duration_since(self.start).as_nanos();
        format!("{}.{:06}", nanos / 1_000_000_000, nanos / 1_000 % 1_000_000)
    }

    fn note(&mut self, what: &str) {
        let clock = self.clock(self.now);
        self.log.push(format!("{clock} {what}"));
    }
}

fn suffix(peer: u16) -> String {
    match peer {
        0 => String::new(),
        u16::MAX => " (of no known peer)".to_owned(),
        peer => format!(" (peer {peer})"),
    }
}

fn describe(what: &Happening) -> String {
    let value = what
        .value
        .map_or(String::new(), |value| format!(" {value}"));
    format!("{}{value}", what.name)
}

fn happening(event: Event) -> Happening {
    let (name, value) = match event {
        Event::Incoming { .. } => ("incoming", None),
        Event::Established => ("established", None),
        Event::PeerClosed => ("peer_closed", None),
        Event::Reset => ("reset", None),
        Event::Refused => ("refused", None),
        Event::TimedOut => ("timed_out", None),
        Event::Closed => ("closed", None),
        Event::TimeWaitOver => ("time_wait_over", None),
        Event::MssChanged { mss } => ("mss_changed", Some(mss as u64)),
        Event::Urgent => ("urgent", None),
        Event::WindowTooSmall => ("window_too_small", None),
        Event::SoftError(SoftError::NoAnswer) => ("no_answer", None),
        Event::SoftError(SoftError::Unreachable { .. }) => ("unreachable", None),
    };
    let name = name.to_owned();
    Happening { name, value }
}
