//! A seed from beginning to end: a random program, then calm, in which everything must be done, then
//! the end of every stream, after which nothing may be left.

use std::collections::BTreeMap;
use std::time::Duration;

use rnic_engine::command::Command;
use rnic_ipc::control::{ConnectSpec, MarkerUse, MpaOptions, Transport};
use rnic_net::PeerRules;

use crate::memory::Party;
use crate::simulation::{Simulation, Validity};
use crate::stream::Life;

/// Within this time a stream does all its work, and one that is at its end ends.
const PATIENCE: Duration = Duration::from_secs(1000);
/// The longest that TCP remembers a connection.
const TIME_WAIT: Duration = Duration::from_secs(200);

/// So many streams of a thousand are of a node with itself.
const LOOPBACK: u64 = 200;
/// After so many actions of a thousand something happens to a joined host itself.
const DISTURBED: u64 = 50;

/// What a seed's world is like.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub nodes: usize,
    /// How many of them are of one host, and joined by internal links.
    pub joined: usize,
    /// How many of them are shards of one interface.
    pub siblings: usize,
    pub streams: u64,
    pub actions: u64,
}

/// Runs a seed, and gives the sums of the nodes' counters.
pub fn run(seed: u64, size: Size) -> BTreeMap<String, u64> {
    let mut it = Simulation::new(seed, size);
    let streams = 1 + it.random.below(size.streams);
    for _ in 0..streams {
        let from = it.random.below(size.nodes as u64) as usize;
        let to = it.random.below(size.nodes as u64 - 1) as usize;
        let to = match it.random.chance(LOOPBACK) {
            true => from,
            false if to == from => size.nodes - 1,
            false => to,
        };
        it.connect(from, to);
    }
    let actions = it.random.below(size.actions);
    let pace = 100 + it.random.below(700);
    for _ in 0..actions {
        it.act();
        if !it.host.is_empty() && it.random.chance(DISTURBED) {
            it.disturb();
        }
        if it.random.chance(pace) {
            it.step();
        }
        if it.random.chance(50) {
            it.check_memories();
        }
    }
    it.bring_to_rest();
    it.take_down();
    let lost = it.lost_by_links();
    if lost > 0 {
        it.happened.insert("frames_lost_by_links".into(), lost);
    }
    let mut sums = std::mem::take(&mut it.happened);
    for (name, count) in it.nodes.iter_mut().flat_map(|node| node.counters()) {
        *sums.entry(name).or_insert(0) += count;
    }
    assert_eq!(sums["unsendable"], 0, "segments that did not leave");
    sums
}

impl Simulation {
    pub fn begin_connecting(&mut self, stream: usize) {
        let [ours, theirs] = &self.streams[stream].ends;
        let (qp, from, to) = (ours.qp, ours.node, theirs.node);
        let transport = self.streams[stream].transport;
        let mpa = match transport {
            Transport::Tcp => ours.mpa,
            Transport::Sctp => MpaOptions {
                markers: MarkerUse::Off,
                ..ours.mpa
            },
        };
        let mut local = self.nodes[from].address;
        local.set_port(self.streams[stream].port);
        let (internal_link, path) = match self.streams[stream].internal {
            true => {
                let (link, path) = self.internal_path(from, to);
                (Some(link), path)
            }
            false => (None, self.nodes[from].path_to(&self.nodes[to])),
        };
        let command = Command::Connect {
            qp,
            spec: ConnectSpec {
                remote: self.nodes[to].address,
                local: Some(local.ip()),
                local_port: 0,
                transport,
                mpa, // Several streams may come from one port.
                private_data: self.streams[stream].port.to_be_bytes().to_vec(),
            },
            local,
            path,
            internal_link,
            peers: PeerRules::default(),
        };
        self.nodes[from].execute(command, self.now).unwrap();
        self.due[from] = true;
    }

    pub fn parties(&self) -> Vec<Party> {
        let streams = 0..self.streams.len();
        streams
            .flat_map(|stream| [0, 1].map(|end| Party { stream, end }))
            .collect()
    }

    /// No more work comes: what is posted is done, unless its stream may have ended.
    fn bring_to_rest(&mut self) {
        for party in self.parties() {
            if !self.streams[party.stream].is_doomed() {
                self.fence(party);
            }
        }
        let rests = |it: &Self| {
            let noticed = it.parties().into_iter().all(|party| it.has_noticed(party));
            noticed
                && it.streams.iter().all(|stream| {
                    if stream.is_doomed() {
                        let certain = stream.certain_cause().is_some() && it.is_calm();
                        return !certain || stream.ends.iter().all(|end| !end.is_alive());
                    }
                    stream.ends.iter().all(|end| {
                        let delivered = end.line.iter().all(|m| m.what.is_request());
                        let waiting = end.sq.iter().any(|posted| posted.signaled);
                        delivered && !waiting
                    })
                })
        };
        let done = self.run_until(PATIENCE, rests);
        assert!(done, "work that is never done: {:#?}", self.streams);
        self.check_memories();
    }

    /// Every stream ends, then everything is given back.
    fn take_down(&mut self) {
        for party in self.parties() {
            match self.random.below(4) {
                0 => self.destroy(party),
                1 => self.disconnect(party, true),
                _ => self.disconnect(party, false),
            }
            if self.random.chance(500) {
                self.step();
            }
        }
        let end = self.now + TIME_WAIT;
        while self.step_until(end) {}
        for (who, node) in self.nodes.iter().enumerate() {
            // Nothing is under way, unless a peer went whose RST was lost; and queue pairs that are
            // destroyed gave back what they had.
            let levels = node.shard.levels();
            assert!(
                levels.connections > 0 || levels.queues_lent == 0,
                "node {who}: {levels:?}"
            );
        }
        for party in self.parties() {
            self.destroy(party);
        }
        let end = self.now + TIME_WAIT;
        while self.step_until(end) {}
        self.remove_srqs();
        self.check_memories();
        for (who, memory) in self.memories.iter().enumerate() {
            memory.assert_quiet(who);
        }
        for index in 0..self.regions.len() {
            let region = &self.regions[index];
            if region.window.is_none() && region.validity != Validity::Revoked {
                self.revoke(index);
            }
        }
        for window in 0..self.windows.len() {
            self.remove_window(window);
        }
        for (who, node) in self.nodes.iter_mut().enumerate() {
            if self.host.has_siblings() {
                // Frames that siblings gave for others come back with the next poll.
                node.shard.poll(self.now);
            }
            node.assert_empty(who);
        }
        debug_assert!(
            self.streams
                .iter()
                .flat_map(|s| &s.ends)
                .all(|e| e.life == Life::Gone)
        );
    }
}
