//! Plays a script: the stack, its clock, and what it sent and told that nobody has asked for yet.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use userspace_net::Instant;
use userspace_sctp::packet::Header;
use userspace_sctp::{AssocId, Config, Ends, Event, Outgoing, Stack, State};

use crate::wire::{self, Base, PEERS_TAG, Said};

/// How far from its time a packet or an event may be.
const TOLERANCE: Duration = Duration::from_millis(1);

struct Machine {
    stack: Stack<Vec<u8>>,
    now: Instant,
    /// When the line before was.
    last: Instant,
    id: Option<AssocId>,
    base: Base,
    sent: VecDeque<(Instant, u32, Vec<Said>)>,
    events: VecDeque<(Instant, String)>,
    shown: usize,
    released: usize,
}

/// A script from its file.
pub fn run(home: &Path, path: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    run_text(home, &text)
}

/// Its lines, after `config` lines.
pub fn run_text(home: &Path, text: &str) -> Result<(), String> {
    let mut config = Config {
        heartbeat_interval: None,
        ..Config::default()
    };
    let mut lines = Vec::new();
    include(home, text, "", &mut lines)?;
    for (place, line) in &lines {
        if let Some(rest) = line.strip_prefix("config ") {
            let set = configure(&mut config, rest);
            set.map_err(|error| format!("{place}: {error}"))?;
        }
    }
    let mut machine = Machine {
        stack: Stack::new(config, [3; 16], Instant::ZERO),
        now: Instant::ZERO,
        last: Instant::ZERO,
        id: None,
        base: Base::default(),
        sent: VecDeque::new(),
        events: VecDeque::new(),
        shown: 0,
        released: 0,
    };
    for (place, line) in &lines {
        if !line.starts_with("config ") {
            let played = machine.line(line);
            played.map_err(|error| format!("{place}: `{line}`: {error}"))?;
        }
    }
    machine.collect();
    machine.nothing_left()
}

fn include(
    home: &Path,
    text: &str,
    by: &str,
    to: &mut Vec<(String, String)>,
) -> Result<(), String> {
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        let place = format!("{by}line {number}");
        if let Some(name) = line.strip_prefix("do ") {
            let path = home.join("common").join(name).with_extension("sctp");
            let text = std::fs::read_to_string(&path);
            let text = text.map_err(|error| format!("{place}: {}: {error}", path.display()))?;
            include(home, &text, &format!("{place}, {name} "), to)?;
        } else if !line.is_empty() {
            to.push((place, line.to_owned()));
        }
    }
    Ok(())
}

fn configure(config: &mut Config, text: &str) -> Result<(), String> {
    let (name, value) = text.split_once('=').ok_or("config NAME=NUMBER")?;
    let number: u32 = value.parse().map_err(|_| "config NAME=NUMBER")?;
    match name {
        "streams" => {
            config.outbound_streams = number as u16;
            config.inbound_streams = number as u16;
        }
        "associations" => config.associations = number as usize,
        "max_init_retransmits" => config.max_init_retransmits = number,
        "association_max_retrans" => config.association_max_retrans = number,
        "heartbeat" => config.heartbeat_interval = Some(Duration::from_secs(number.into())),
        _ => return Err(format!("unknown setting {name}")),
    }
    Ok(())
}

fn ends(port: u16) -> Ends {
    Ends {
        local: ([198, 18, 0, 1], 5000).into(),
        remote: ([198, 18, 0, 2], port).into(),
    }
}

/// `+0.5 rest` or `+0.5~1 rest`.
fn time(line: &str) -> Result<(Duration, Duration, &str), String> {
    let Some(rest) = line.strip_prefix('+') else {
        return Ok((Duration::ZERO, Duration::ZERO, line));
    };
    let (time, rest) = rest.split_once(' ').ok_or("a time and nothing else")?;
    let (from, to) = time.split_once('~').unwrap_or((time, time));
    let seconds = |text: &str| -> Result<Duration, String> {
        let number: f64 = text.parse().map_err(|_| format!("{text} is no time"))?;
        Ok(Duration::from_secs_f64(number))
    };
    Ok((seconds(from)?, seconds(to)?, rest))
}

/// What stands in brackets ahead of the chunks, and the rest.
fn header(text: &str) -> Result<(Said, &str), String> {
    let Some(rest) = text.strip_prefix('[') else {
        return Ok((Said::default(), text));
    };
    let (inside, rest) = rest.split_once(']').ok_or("no ]")?;
    let mut said = wire::said(&format!("packet {inside}"));
    Ok((said.remove(0), rest.trim()))
}

impl Machine {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let (from, to, rest) = time(line)?;
        let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        match word {
            ">" => return self.expect_packet(from, to, rest),
            "!" => return self.expect_event(from, to, rest),
            _ => {}
        }
        self.run_to(self.last + from);
        if word != "?" || !from.is_zero() {
            self.nothing_left()?;
        }
        self.last = self.now;
        match word {
            "<" => self.arrives(rest)?,
            "?" => self.ask(rest)?,
            "connect" => {
                let connected = self.stack.connect(self.now, ends(5001));
                self.id = Some(connected.map_err(|error| error.to_string())?);
            }
            "listen" => {
                let listens = self.stack.listen(ends(5001).local);
                listens.map_err(|error| error.to_string())?;
            }
            "send" => self.send(rest)?,
            "close" => {
                let id = self.id.ok_or("no association")?;
                self.stack.close(self.now, id);
            }
            "abort" => {
                let id = self.id.ok_or("no association")?;
                self.stack.abort(self.now, id, b"enough");
            }
            other => return Err(format!("unknown word {other}")),
        }
        self.collect();
        Ok(())
    }

    fn send(&mut self, rest: &str) -> Result<(), String> {
        let mut words = rest.split(' ');
        let len = words.next().unwrap_or_default().parse();
        let outgoing = Outgoing {
            stream: 1,
            protocol: 16,
            buffer: vec![1; len.map_err(|_| "send BYTES [refused]")?],
        };
        let id = self.id.ok_or("no association")?;
        let posted = self.stack.post(self.now, id, outgoing);
        match (posted, words.next()) {
            (Ok(()), None) | (Err(_), Some("refused")) => Ok(()),
            (Ok(()), _) => Err("it was taken".to_owned()),
            (Err(refused), _) => Err(refused.error.to_string()),
        }
    }

    fn arrives(&mut self, text: &str) -> Result<(), String> {
        let ((_, more), chunks) = header(text)?;
        let chunks = wire::said(chunks);
        let is_init = chunks.first().is_some_and(|(name, _)| name == "INIT");
        let tag = match more.get("tag").map(String::as_str) {
            None if is_init => 0,
            None | Some("ours") => self.base.tag,
            Some("offered") => self.base.offered,
            Some("peers") => PEERS_TAG,
            Some("wrong") => self.base.tag ^ 0x0101,
            Some(number) => number.parse().map_err(|_| format!("tag={number}"))?,
        };
        let port = match more.get("port") {
            Some(port) => port.parse().map_err(|_| format!("port={port}"))?,
            None => 5001,
        };
        let Ends {
            local: at,
            mut remote,
        } = ends(port);
        if let Some(from) = more.get("from") {
            remote.set_ip(from.parse().map_err(|_| format!("from={from}"))?);
        }
        let head = Header {
            source: remote.port(),
            destination: at.port(),
            tag,
        };
        let bytes = wire::packet(head, &chunks, &self.base, &more)?;
        let (mut bytes_shown, mut of) = (0, None);
        self.stack.receive(
            self.now,
            at.ip(),
            remote.ip(),
            None,
            &bytes,
            |id, message| {
                self.shown += 1;
                bytes_shown += message.payload.len();
                of = Some(id);
            },
        );
        if let Some(id) = of {
            self.stack.consumed(self.now, id, bytes_shown);
        }
        Ok(())
    }

    fn ask(&self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_once(" == ").ok_or("? NAME == VALUE")?;
        let info = self.id.and_then(|id| self.stack.info(id));
        let found = match name {
            "state" => info.map_or("CLOSED", |info| state(info.state)).to_owned(),
            "shown" => self.shown.to_string(),
            "streams" => info.map_or("none".to_owned(), |info| {
                let agreed = info.agreed;
                format!("{}/{}", agreed.outbound_streams, agreed.inbound_streams)
            }),
            "errors" => info.map_or("none".to_owned(), |info| info.errors.to_string()),
            "flight" => info.map_or("none".to_owned(), |info| info.flight.to_string()),
            "released" => self.released.to_string(),
            "refused" => self.stack.counters().associations_refused.to_string(),
            _ => return Err(format!("unknown question {name}")),
        };
        match found == value {
            true => Ok(()),
            false => Err(format!("it is {found}")),
        }
    }

    fn expect_packet(&mut self, from: Duration, to: Duration, text: &str) -> Result<(), String> {
        self.run_until(self.last + to, |machine| !machine.sent.is_empty());
        let (at, tag, chunks) = self.sent.pop_front().ok_or("nothing was sent")?;
        self.check_time(at, from, to)?;
        let ((_, more), text) = header(text)?;
        let expected_tag = match more.get("tag").map(String::as_str) {
            None if chunks[0].0 == "INIT" => 0,
            None | Some("peers") => PEERS_TAG,
            Some("ours") => self.base.tag,
            Some(number) => number.parse().map_err(|_| format!("tag={number}"))?,
        };
        if tag != expected_tag {
            return Err(format!("the Verification Tag is {tag:#x}: {chunks:?}"));
        }
        let expected = wire::said(text);
        let is_like = |(expected, found): (&Said, &Said)| {
            let has = |(key, value): (&String, &String)| {
                found.1.get(key).is_some_and(|found| found == value)
            };
            expected.0 == found.0 && expected.1.iter().all(has)
        };
        let all = expected.len() == chunks.len() && expected.iter().zip(&chunks).all(is_like);
        match all {
            true => Ok(()),
            false => Err(format!("sent was {chunks:?}")),
        }
    }

    fn expect_event(&mut self, from: Duration, to: Duration, text: &str) -> Result<(), String> {
        self.run_until(self.last + to, |machine| !machine.events.is_empty());
        let (at, event) = self.events.pop_front().ok_or("nothing happened")?;
        self.check_time(at, from, to)?;
        // What comes behind the name may be left out.
        match event == text || event.split_once(' ').is_some_and(|(name, _)| name == text) {
            true => Ok(()),
            false => Err(format!("the event is {event}")),
        }
    }

    fn check_time(&mut self, at: Instant, from: Duration, to: Duration) -> Result<(), String> {
        let took = at.saturating_duration_since(self.last);
        self.last = at;
        match took + TOLERANCE >= from && took <= to + TOLERANCE {
            true => Ok(()),
            false => Err(format!("it came after {took:?}")),
        }
    }

    /// All deadlines up to then, or until there is what is waited for.
    fn run_until(&mut self, to: Instant, is_there: impl Fn(&Self) -> bool) {
        while !is_there(self) {
            let Some(at) = self.stack.next_deadline() else {
                return;
            };
            if at > to + TOLERANCE {
                return;
            }
            self.now = at.max(self.now);
            self.stack.advance(self.now);
            self.collect();
        }
    }

    fn run_to(&mut self, to: Instant) {
        while let Some(at) = self.stack.next_deadline()
            && at <= to
        {
            self.now = at.max(self.now);
            self.stack.advance(self.now);
            self.collect();
        }
        self.now = to.max(self.now);
    }

    fn collect(&mut self) {
        while let Some((id, event)) = self.stack.poll_event() {
            let name = match event {
                Event::Incoming(_) => "incoming",
                Event::Established(_) => "established",
                Event::Restarted(_) => "restarted",
                Event::MtuChanged { .. } => "mtu_changed",
                Event::PathDown { .. } => "path_down",
                Event::PathConfirmed { .. } => "path_confirmed",
                Event::PathUp { .. } => "path_up",
                Event::PeerClosed => "peer_closed",
                Event::Closed => "closed",
                Event::Aborted(cause) => {
                    let code = cause
                        .code
                        .map_or("none".to_owned(), |code| code.to_string());
                    let reason = String::from_utf8_lossy(cause.reason()).into_owned();
                    let told = format!("aborted {code} {reason}");
                    self.id = Some(id);
                    self.events
                        .push_back((self.now, told.trim_end().to_owned()));
                    continue;
                }
                Event::Failed(_) => "failed",
            };
            self.id = Some(id);
            self.events.push_back((self.now, name.to_owned()));
        }
        self.released += std::iter::from_fn(|| self.stack.poll_released()).count();
        let mut out = [0; 1500];
        while let Some(sent) = self.stack.poll_transmit(self.now, &mut out) {
            let info = self.id.and_then(|id| self.stack.info(id));
            let is_established = info
                .is_some_and(|info| !matches!(info.state, State::CookieWait | State::CookieEchoed));
            let (tag, chunks) = wire::read(&out[..sent.len], &mut self.base, is_established);
            self.sent.push_back((self.now, tag, chunks));
        }
    }

    fn nothing_left(&self) -> Result<(), String> {
        match (self.sent.front(), self.events.front()) {
            (None, None) => Ok(()),
            (Some((_, _, chunks)), _) => Err(format!("left over: {chunks:?}")),
            (_, Some((_, event))) => Err(format!("left over: the event {event}")),
        }
    }
}

fn state(state: State) -> &'static str {
    match state {
        State::CookieWait => "COOKIE-WAIT",
        State::CookieEchoed => "COOKIE-ECHOED",
        State::Established => "ESTABLISHED",
        State::ShutdownPending => "SHUTDOWN-PENDING",
        State::ShutdownSent => "SHUTDOWN-SENT",
        State::ShutdownReceived => "SHUTDOWN-RECEIVED",
        State::ShutdownAckSent => "SHUTDOWN-ACK-SENT",
        State::Closed => "CLOSED",
    }
}
