//! A connection from its two ends: what was planned, what happened, and whether that is right.

use std::time::Duration;

use userspace_net::{FourTuple, Instant};
use userspace_tcp::Event;

use super::engine::Engine;
use super::scenario::{Fate, FlowPlan};
use crate::harness::Application;

/// Within this a side that hears nothing any more has given up: its user timeout, its keepalive,
/// FIN-WAIT-2 and TIME-WAIT.
const PATIENCE: Duration = Duration::from_secs(500);

pub struct Flow {
    pub plan: FlowPlan,
    pub apps: [Application; 2],
    /// When each side was notified of the end.
    pub over_at: [Option<Instant>; 2],
    /// Since when nothing arrives.
    pub cut_at: Option<Instant>,
    /// Which side has reset it.
    pub aborted: Option<usize>,
    /// It was opened once more.
    pub reopened: bool,
    ports: [u16; 2],
}

impl Flow {
    /// `number` makes its ports and its streams, `generation` its streams.
    pub fn new(plan: FlowPlan, number: usize, generation: u64) -> Self {
        let voice = |side| 1000 * generation + 2 * number as u64 + side;
        let [first, second] = plan.plans.clone();
        let apps = [
            Application::new(voice(0), voice(1), first),
            Application::new(voice(1), voice(0), second),
        ];
        let listener = match plan.fate {
            _ if plan.both_open => 50_000 + number as u16,
            Fate::Refused => 9,
            _ => 7000,
        };
        Self {
            apps,
            over_at: [None; 2],
            cut_at: None,
            aborted: None,
            reopened: false,
            ports: [40_000 + number as u16, listener],
            plan,
        }
    }

    /// As `side` sees it.
    pub fn tuple(&self, side: usize) -> FourTuple {
        let end = |side: usize| {
            let addr = Engine::addr(self.plan.ends[side], self.plan.v6);
            (addr, self.ports[side])
        };
        FourTuple::new(end(side), end(1 - side))
    }

    /// Whether both sides do all that they planned.
    fn is_whole(&self) -> bool {
        matches!(self.plan.fate, Fate::Whole | Fate::Stop { .. })
    }

    /// Whether a side may have to find out that nobody is there.
    pub fn is_forsaken(&self) -> bool {
        !self.is_whole() && self.plan.fate != Fate::Refused
    }

    /// What must hold when everything is over.
    pub fn judge(&self) {
        let [first, second] = &self.apps;
        for (app, peer) in [(first, second), (second, first)] {
            let events = &app.events;
            assert!(app.in_order_to <= peer.sent, "more than was sent");
            assert!(app.seen.bytes() <= peer.sent, "more than was sent");
            assert!(
                app.over || app.conn.is_none(),
                "{:?}: no end: {events:?}",
                self.plan.fate
            );
            let last = events.iter().rposition(|event| {
                matches!(
                    event,
                    Event::Closed | Event::Reset | Event::Refused | Event::TimedOut
                )
            });
            let behind = events.len() - last.map_or(events.len(), |last| last + 1);
            assert!(behind <= 1, "events behind the end: {events:?}");
        }
        if self.is_whole() {
            first.assert_complete(second);
            second.assert_complete(first);
        }
        if self.plan.fate == Fate::Refused {
            assert_eq!(without_soft_errors(&first.events), [Event::Refused]);
        }
        if let Some(cut_at) = self.cut_at {
            for over_at in self.over_at.into_iter().flatten() {
                let lasted = over_at.saturating_duration_since(cut_at);
                assert!(lasted < PATIENCE, "gave up after {lasted:?}");
            }
        }
    }
}

fn without_soft_errors(events: &[Event]) -> Vec<Event> {
    let told = |event: &&Event| !matches!(event, Event::SoftError(_));
    events.iter().filter(told).copied().collect()
}
