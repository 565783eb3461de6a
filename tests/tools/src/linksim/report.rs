//! What the link has counted, for people and for programs.

use std::time::Duration;

use serde::Serialize;

use super::carrier::{Carrier, CarrierLoss};
use super::counters::Counters;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Text,
    /// One JSON object on one line.
    Json,
}

/// Everything at one time.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Since the start.
    pub seconds: f64,
    pub seed: u64,
    pub to_right: Way,
    pub to_left: Way,
    /// What the carrier lost on the left interface.
    pub carrier_left: CarrierLoss,
    pub carrier_right: CarrierLoss,
    /// What the carrier lost in all, packets: 0 when the link kept up.
    pub carrier_lost: u64,
    pub frames_free: usize,
}

#[derive(Clone, Debug, Serialize)]
pub struct Way {
    #[serde(flatten)]
    pub counters: Counters,
    /// Packets in the queue.
    pub queued: usize,
    /// Packets in the link: queued, delayed or held back.
    pub waiting: usize,
}

impl Report {
    /// Asks everything.
    pub fn of(carrier: &mut Carrier, seed: u64, now: Duration) -> Self {
        let [carrier_left, carrier_right] = [carrier.lost(0), carrier.lost(1)];
        let frames_free = carrier.bridge.free_frames();
        let [to_right, to_left] = carrier.bridge.directions().each_mut().map(|direction| Way {
            counters: *direction.counters(),
            queued: direction.queued(now),
            waiting: direction.waiting(),
        });
        Self {
            seconds: now.as_secs_f64(),
            seed,
            to_right,
            to_left,
            carrier_left,
            carrier_right,
            carrier_lost: carrier_left.total() + carrier_right.total(),
            frames_free,
        }
    }

    /// As text or JSON, with a line's end.
    pub fn show(&self, format: Format) -> String {
        match format {
            Format::Text => self.table(),
            // Numbers and names only: there is nothing that can't be written.
            Format::Json => serde_json::to_string(self).unwrap_or_default() + "\n",
        }
    }

    /// Only what is not 0, but always what came and what left.
    fn table(&self) -> String {
        let mut text = format!(
            "linksim: {:.1} s, seed {}\n{:>20} {:>14} {:>14}\n",
            self.seconds, self.seed, "", "to right", "to left"
        );
        let (right, left) = (self.to_right.rows(), self.to_left.rows());
        for ((name, right), (_, left)) in right.into_iter().zip(left) {
            if right + left > 0 || matches!(name, "arrived" | "forwarded") {
                text += &format!("{:>20} {right:>14} {left:>14}\n", name.replace('_', " "));
            }
        }
        let sides = [("left", self.carrier_left), ("right", self.carrier_right)];
        for (side, lost) in sides {
            if lost.total() > 0 {
                text += &format!(
                    "{:>20} {} not received, {} not sent, {} unusable on the {side}: the link did \
                     not keep up\n",
                    "carrier lost", lost.receive, lost.send, lost.unusable
                );
            }
        }
        text
    }
}

impl Way {
    fn rows(&self) -> Vec<(&'static str, u64)> {
        let mut rows = self.counters.named();
        rows.push(("queued", self.queued as u64));
        rows.push(("waiting", self.waiting as u64));
        rows
    }
}
