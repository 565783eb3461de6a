//! A peer over SCTP that says whatever the test wants, and an innocent one beside it.

use std::time::Duration;

use rnic_engine::command::{Command, ShardEvent};
use rnic_ipc::control::{Event, MpaOptions, Transport};
use rnic_ipc::id::QpNum;
use rnic_net::PathDefaults;
use userspace_net::Instant;
use userspace_sctp::chunk::Chunk;

use crate::sctp_peer::{ACCEPT, CONTROL, Heard, INITIATE, SEGMENT, SctpPeer, control, segment};
use crate::side::{Side, SideConfig};

const PEER: &str = "198.18.0.9:5000";
const INNOCENT: &str = "198.18.0.10:5000";
const SIDE: u8 = 2;

pub struct SctpDuel {
    pub side: Side,
    /// The one under test first, then the innocent one.
    pub peers: [SctpPeer; 2],
    pub now: Instant,
}

pub const HOSTILE: usize = 0;
pub const OTHER: usize = 1;

impl SctpDuel {
    pub fn new(config: SideConfig) -> Self {
        let mut side = Side::new(SIDE, "198.18.0.2:7174".parse().unwrap(), config);
        let now = Instant::from_nanos(1_000_000);
        side.transport = Transport::Sctp;
        side.listen(4, now);
        let peers = [(PEER, 9), (INNOCENT, 10)]
            .map(|(address, number)| SctpPeer::new(address, number, side.address, SIDE));
        Self { side, peers, now }
    }

    /// An association, without a session.
    pub fn associate(&mut self, who: usize) {
        let init = self.peers[who].init();
        self.give(&[init]);
        let echo = self.peers[who].cookie_echo(&[]);
        self.give(&[echo]);
        let heard = &self.peers[who].heard;
        assert_eq!(heard[..], [Heard::InitAck, Heard::CookieAck]);
        self.peers[who].heard.clear();
    }

    /// An association, and a session that has been asked for.
    pub fn initiate(&mut self, who: usize) {
        self.associate(who);
        self.send(who, CONTROL, &control(0, INITIATE, b"raw"));
    }

    /// A session with a queue pair. The peer has sent and received one chunk of it.
    pub fn open(&mut self, who: usize) -> QpNum {
        self.initiate(who);
        let qp = self.side.create_qp();
        self.accept(who, qp);
        qp
    }

    /// The side accepts what it was asked for.
    pub fn accept(&mut self, who: usize, qp: QpNum) {
        let (request, asked, data) = self.side.take_request().expect("a request");
        assert_eq!(data, b"raw");
        let command = Command::Accept {
            request,
            qp,
            mpa: MpaOptions {
                ird: 4,
                ord: 4,
                ..asked
            },
            private_data: Vec::new(),
        };
        self.side.shard.execute(command, self.now).unwrap();
        self.pump();
        let accepted = (CONTROL, control(0, ACCEPT, b""));
        assert_eq!(self.peers[who].data, [accepted]);
        self.peers[who].data.clear();
    }

    pub fn send(&mut self, who: usize, protocol: u32, bytes: &[u8]) {
        let data = self.peers[who].next_data(protocol, bytes);
        let packet = self.peers[who].packet(&[data]);
        self.give(&[packet]);
    }

    pub fn send_segment(&mut self, who: usize, ssn: u16, bytes: &[u8]) {
        self.send(who, SEGMENT, &segment(ssn, bytes));
    }

    pub fn send_chunks(&mut self, who: usize, chunks: &[Chunk<'_>]) {
        let packet = self.peers[who].packet(chunks);
        self.give(&[packet]);
    }

    /// Gives the side frames, and lets all work.
    pub fn give(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            assert!(self.side.wire.as_ref().unwrap().push(frame));
        }
        self.pump();
    }

    /// All work until nothing is left to do now.
    pub fn pump(&mut self) {
        let mut worked = true;
        while worked {
            worked = self.side.shard.poll(self.now);
            self.side.collect();
            let mut frame = Vec::new();
            while self.side.wire.as_ref().unwrap().take(&mut frame) {
                worked = true;
                let parsed = match rnic_net::parse(&frame, &PathDefaults::new(1500)) {
                    // What goes to a peer that is silent for long may be a fragment: lost.
                    Err(rnic_net::DropReason::Fragment) => continue,
                    parsed => parsed.unwrap(),
                };
                let is_its = |peer: &&mut SctpPeer| peer.is_at(&parsed.tuple);
                // What goes to nobody is lost.
                if let Some(peer) = self.peers.iter_mut().find(is_its) {
                    peer.take(&frame);
                }
            }
            for peer in &mut self.peers {
                for answer in peer.answers() {
                    assert!(self.side.wire.as_ref().unwrap().push(&answer));
                }
            }
        }
    }

    /// Lets time go on, timers included.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.pump();
        while self.now < end {
            let next = self.side.shard.next_deadline().unwrap_or(end);
            self.now = next.max(self.now + Duration::from_nanos(1)).min(end);
            self.pump();
        }
    }

    /// The request that waited has ended.
    pub fn request_is_gone(&self) -> bool {
        let gone = |event: &ShardEvent| matches!(event, ShardEvent::RequestGone { .. });
        self.side.events.iter().any(gone)
    }

    /// What the client learns of the end of a queue pair's connection.
    pub fn told(&self, qp: QpNum) -> Option<&str> {
        self.side.client_events().find_map(|event| match event {
            Event::Disconnected {
                qp: of, message, ..
            } if *of == qp => Some(message.as_str()),
            _ => None,
        })
    }
}
