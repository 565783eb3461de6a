//! What has to come, and what is asked for.

use userspace_net::Instant;

use crate::host::Host;
use crate::look::{self, Seen};
use crate::syntax::{Happening, Question, SegmentLine, Shown};

use super::{Machine, Wrong, compare, describe};

impl<H: Host> Machine<'_, H> {
    /// The next segment out.
    pub(super) fn expect(
        &mut self,
        window: (Instant, Instant),
        peer: u16,
        line: &SegmentLine,
    ) -> Result<(), Wrong> {
        let expected = || compare::describe(line, peer);
        if self.sent.is_empty() {
            let what = format!("{} and nothing else", expected());
            self.no_events(&what)?;
            self.run_until_something(window.1)?;
        }
        let Some(sent) = self.sent.pop_front() else {
            self.no_events(&expected())?;
            let until = self.clock(window.1);
            return Err((expected(), format!("no segment until {until}")));
        };
        let got = format!("{} > {}", self.clock(sent.at), self.print(&sent));
        if sent.at < window.0 || sent.at > window.1 {
            let (from, to) = (self.clock(window.0), self.clock(window.1));
            let early = if sent.at < window.0 {
                "too early"
            } else {
                "too late"
            };
            return Err((
                format!("{} from {from} to {to}", expected()),
                format!("{early}: {got}"),
            ));
        }
        let differences = self.differences(line, peer, &sent);
        if !differences.is_empty() {
            let got = format!("{got}\n          differs in: {}", differences.join("; "));
            return Err((expected(), got));
        }
        self.reference = sent.at;
        Ok(())
    }

    /// The next event.
    pub(super) fn happens(
        &mut self,
        window: (Instant, Instant),
        peer: u16,
        what: &Happening,
    ) -> Result<(), Wrong> {
        let expected = || format!("the event {}", describe(what));
        if self.events.is_empty() {
            if window.0 > self.now {
                self.nothing_pending("nothing before this event")?;
            }
            self.run_until_something(window.1)?;
        }
        let Some((at, from, got)) = self.events.pop_front() else {
            return Err((expected(), format!("none until {}", self.clock(window.1))));
        };
        if at < window.0 || at > window.1 || from != peer || got != *what {
            let got = format!("{} at {} of peer {from}", describe(&got), self.clock(at));
            let (from, to) = (self.clock(window.0), self.clock(window.1));
            return Err((
                format!("{} from {from} to {to} of peer {peer}", expected()),
                got,
            ));
        }
        self.reference = at;
        Ok(())
    }

    pub(super) fn ask(&mut self, peer: u16, question: &Question) -> Result<(), Wrong> {
        let conn = self.peers.get(&peer).and_then(|peer| peer.conn);
        let iss = self.peers.get(&peer).and_then(|peer| peer.iss);
        let seen = match question.name.as_str() {
            "iss" => iss.map_or(Seen::Nothing, |iss| Seen::Number(u64::from(iss))),
            name => self.host.look(conn, name),
        };
        let unit = |name: &str| -> Seen { self.host.look(conn, name) };
        let expected = format!("{} {:?} {:?}", question.name, question.op, question.value);
        match look::agrees(question, &seen, unit) {
            Ok(true) => Ok(()),
            Ok(false) => Err((expected, format!("{} is {seen:?}", question.name))),
            Err(why) => Err((expected, why)),
        }
    }

    pub(super) fn shown(&mut self, peer: u16, shown: &Shown) -> Result<(), Wrong> {
        let new: Vec<(u64, u64)> = self
            .received
            .new
            .iter()
            .map(|range| (range.offset + 1, range.offset + 1 + u64::from(range.len)))
            .collect();
        if shown.new.as_ref().is_some_and(|wanted| *wanted != new) {
            let expected = format!("new bytes {:?}", shown.new.as_deref().unwrap_or_default());
            return Err((expected, format!("{new:?}")));
        }
        let in_order = self.peer(peer).laws.in_order() + 1;
        if shown.in_order.is_some_and(|wanted| wanted != in_order) {
            let expected = format!("bytes in order up to {}", shown.in_order.unwrap_or(0));
            return Err((expected, format!("up to {in_order}")));
        }
        Ok(())
    }
}
