//! Two stacks with an association between them, and an attacker who injects what the input says. The first byte of
//! the input says whether it hears all packets or only those to its own address.
//!
//! In both cases: no panic, every exchange of packets ends, and associations, held bytes and lent buffers stay within
//! their bounds. Without the tags also: the association is established, lasts, and each message arrives exactly once.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use userspace_net::Instant;
use userspace_sctp::packet::Packet;
use userspace_sctp::{AssocId, Config, Ends, Event, IcmpError, IcmpQuote, Outgoing, Stack};

use super::attacker::{Attacker, STRANGER};
use super::input::Input;

const PORT: u16 = 5000;
const ASSOCIATIONS: usize = 8;
const SEND_CHUNKS: usize = 16;
const WINDOW: u32 = 4000;

/// Gaps are filled beyond the window, up to a second one and the packet that exceeds it.
const HELD_MAX: usize = 2 * WINDOW as usize + 1500;

/// Packets that the network loses when the attacker may not end the association.
const LOSSES_MAX: u8 = 4;

/// More than any exchange without new input takes.
const EXCHANGE_MAX: usize = 5000;

fn address(side: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1 + side as u8))
}

fn end(side: usize) -> SocketAddr {
    SocketAddr::new(address(side), PORT)
}

/// Gives how many messages came.
pub fn run(bytes: &[u8]) -> usize {
    let mut input = Input::new(bytes);
    let mut world = World::new(input.one_in(2));
    while !input.is_empty() {
        world.step(&mut input);
        world.check();
    }
    if !world.hears_all {
        world.judge();
    }
    world.end();
    world.sides.iter().map(|side| side.came.len()).sum()
}

struct Side {
    stack: Stack<Vec<u8>>,
    /// The association with the other side.
    id: Option<AssocId>,
    posted: BTreeSet<u32>,
    came: BTreeSet<u32>,
    /// Messages that are not consumed.
    held: VecDeque<(AssocId, usize)>,
    lent: usize,
    is_closed: bool,
}

struct UnderWay {
    to: usize,
    from: IpAddr,
    bytes: Vec<u8>,
    is_forged: bool,
}

struct World {
    sides: [Side; 2],
    under_way: VecDeque<UnderWay>,
    attacker: Attacker,
    hears_all: bool,
    /// Tags of the association, which an attacker that does not hear them may not guess.
    tags: BTreeSet<u32>,
    losses: u8,
    now: Instant,
}

impl World {
    fn new(hears_all: bool) -> Self {
        let config = Config {
            associations: ASSOCIATIONS,
            send_chunks: SEND_CHUNKS,
            receive_window: WINDOW,
            fragment_bytes: WINDOW as usize,
            // Else losses alone make packets smaller.
            path_mtu_probing: hears_all,
            peer_addresses: 4,
            ..Config::default()
        };
        let side = |key| Side {
            stack: Stack::new(config.clone(), [key; 16], Instant::ZERO),
            id: None,
            posted: BTreeSet::new(),
            came: BTreeSet::new(),
            held: VecDeque::new(),
            lent: 0,
            is_closed: false,
        };
        let mut sides = [side(1), side(2)];
        sides[1].stack.listen(end(1)).expect("nobody listens");
        let ends = Ends {
            local: end(0),
            remote: end(1),
        };
        let id = sides[0].stack.connect(Instant::ZERO, ends);
        sides[0].id = Some(id.expect("there is none yet"));
        let mut world = Self {
            sides,
            under_way: VecDeque::new(),
            attacker: Attacker::default(),
            hears_all,
            tags: BTreeSet::new(),
            losses: 0,
            now: Instant::ZERO,
        };
        world.collect();
        world
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let side = input.below(2);
        match input.below(16) {
            0..=2 => self.deliver(),
            3 => self.lose(),
            4 => self.settle(),
            5..=7 => self.post(side, input.below(600)),
            8 => self.consume(side),
            9 => self.pass(input),
            10 if self.hears_all && input.one_in(4) => {
                self.sides[side].is_closed = true;
                if let Some(id) = self.sides[side].id {
                    self.sides[side].stack.close(self.now, id);
                }
            }
            11 => self.icmp(side, input),
            _ => self.inject(side, input),
        }
        self.collect();
    }

    /// Takes what the stacks send and tell.
    fn collect(&mut self) {
        for side in 0..2 {
            self.take_events(side);
            let mut out = [0; 1500];
            let mut packets = 0;
            while let Some(sent) = self.sides[side].stack.poll_transmit(self.now, &mut out) {
                packets += 1;
                assert!(packets < EXCHANGE_MAX, "one stack sends without end");
                let bytes = out[..sent.len].to_vec();
                let is_to_peer = sent.ends.remote.ip() == address(1 - side);
                let to = is_to_peer.then_some(1 - side);
                if self.hears_all || sent.ends.remote.ip() == STRANGER {
                    self.attacker.hear(side, to, &bytes);
                }
                if let Some(to) = to {
                    self.learn_tags(&bytes);
                    self.under_way.push_back(UnderWay {
                        to,
                        from: address(side),
                        bytes,
                        is_forged: false,
                    });
                }
            }
            while self.sides[side].stack.poll_released().is_some() {
                self.sides[side].lent -= 1;
            }
        }
    }

    fn learn_tags(&mut self, bytes: &[u8]) {
        use userspace_sctp::chunk::Chunk;
        let packet = Packet::parse(bytes).expect("what we write can be read");
        self.tags.insert(packet.header.tag);
        if let Some(Chunk::Init(init) | Chunk::InitAck(init)) = packet.chunks().next() {
            self.tags.insert(init.tag);
        }
        self.tags.remove(&0);
    }

    fn take_events(&mut self, side: usize) {
        while let Some((id, event)) = self.sides[side].stack.poll_event() {
            let of = &mut self.sides[side];
            if let Event::Incoming(agreed) = event
                && agreed.ends.remote == end(1 - side)
            {
                of.id = Some(id);
            }
            let is_harm = matches!(
                event,
                Event::Failed(_)
                    | Event::Aborted(_)
                    | Event::Restarted(_)
                    | Event::MtuChanged { .. }
            );
            let is_ours = of.id == Some(id) && !self.hears_all;
            assert!(!(is_ours && is_harm), "side {side}: {event:?}");
        }
    }

    fn deliver(&mut self) {
        let Some(packet) = self.under_way.pop_front() else {
            return;
        };
        let UnderWay {
            to,
            from,
            bytes,
            is_forged,
        } = packet;
        let Side {
            stack, came, held, ..
        } = &mut self.sides[to];
        let hears_all = self.hears_all;
        stack.receive(self.now, address(to), from, None, &bytes, |id, message| {
            held.push_back((id, message.payload.len()));
            let number = message.payload.first_chunk().copied();
            let is_new = number.is_some_and(|number| came.insert(u32::from_be_bytes(number)));
            if !hears_all {
                assert!(from != STRANGER || is_forged);
                assert!(!is_forged || from == STRANGER, "a forged message came");
                assert!(is_new || from == STRANGER, "a message came twice");
            }
        });
        self.collect();
    }

    fn lose(&mut self) {
        if self.hears_all || self.losses < LOSSES_MAX {
            self.losses = self.losses.saturating_add(1);
            self.under_way.pop_front();
        }
    }

    /// Until nothing is under way.
    fn settle(&mut self) {
        let mut packets = 0;
        while !self.under_way.is_empty() {
            packets += 1;
            assert!(packets < EXCHANGE_MAX, "packets come and go without end");
            self.deliver();
        }
    }

    fn post(&mut self, side: usize, len: usize) {
        let of = &mut self.sides[side];
        let Some(id) = of.id else { return };
        let number = of.posted.len() as u32;
        let mut buffer = number.to_be_bytes().to_vec();
        buffer.resize(4 + len, 0);
        let outgoing = Outgoing {
            stream: 0,
            protocol: 0,
            buffer,
        };
        if of.stack.post(self.now, id, outgoing).is_ok() {
            of.posted.insert(number);
            of.lent += 1;
        }
    }

    fn consume(&mut self, side: usize) {
        let of = &mut self.sides[side];
        while let Some((id, bytes)) = of.held.pop_front() {
            of.stack.consumed(self.now, id, bytes);
        }
    }

    fn pass(&mut self, input: &mut Input<'_>) {
        // Time alone must not end an association that nobody may end.
        if !self.hears_all {
            self.settle();
        }
        let millis = input.pick(&[1, 10, 100, 300, 1000, 3000]);
        self.advance(self.now + Duration::from_millis(millis));
    }

    fn advance(&mut self, now: Instant) {
        self.now = now;
        for side in &mut self.sides {
            side.stack.advance(now);
        }
        self.collect();
    }

    fn icmp(&mut self, side: usize, input: &mut Input<'_>) {
        let tag = match input.pick(&[0, 1, 2]) {
            0 => 0,
            1 if self.hears_all => self.tags.last().copied().unwrap_or(1),
            _ => input.word(),
        };
        let quote = IcmpQuote {
            ends: Ends {
                local: end(side),
                remote: end(1 - side),
            },
            tag,
            init_tag: (tag == 0).then(|| input.word()),
        };
        let error = match input.below(2) {
            0 => IcmpError::NoProtocol,
            _ => IcmpError::PacketTooBig {
                mtu: input.short().into(),
            },
        };
        let is_known = |tag| self.tags.contains(&tag);
        if self.hears_all || !is_known(tag) && !quote.init_tag.is_some_and(is_known) {
            self.sides[side].stack.icmp(self.now, &quote, error);
        }
    }

    fn inject(&mut self, to: usize, input: &mut Input<'_>) {
        let (from, bytes) = self.attacker.packet(input, to, address(1 - to), PORT);
        let names = |tag: &[u8]| {
            let tag = tag.first_chunk().copied().map(u32::from_be_bytes);
            tag.is_some_and(|tag| self.tags.contains(&tag))
        };
        if self.hears_all || !bytes.windows(4).any(names) {
            self.under_way.push_front(UnderWay {
                to,
                from,
                bytes,
                is_forged: true,
            });
            self.deliver();
        }
    }

    fn check(&self) {
        for side in &self.sides {
            let mut count = 0;
            for id in side.stack.associations() {
                count += 1;
                let info = side.stack.info(id).expect("it was listed");
                assert!(info.held <= HELD_MAX, "{} bytes held", info.held);
            }
            assert!(count <= ASSOCIATIONS);
            assert!(side.lent <= SEND_CHUNKS, "{} buffers lent", side.lent);
        }
        assert!(self.under_way.len() < EXCHANGE_MAX);
    }

    /// The network is calm and the attacker is gone: all that was posted arrives.
    fn judge(&mut self) {
        for _ in 0..2000 {
            self.settle();
            (0..2).for_each(|side| self.consume(side));
            self.collect();
            let is_done = self.under_way.is_empty() && self.sides.iter().all(|side| side.lent == 0);
            if is_done && self.sides[1].id.is_some() {
                break;
            }
            self.advance(self.now + Duration::from_millis(200));
        }
        for side in 0..2 {
            let (of, peer) = (&self.sides[side], &self.sides[1 - side]);
            assert_eq!(of.lent, 0, "side {side} waits for its peer");
            let missing: Vec<_> = of.posted.difference(&peer.came).collect();
            assert!(missing.is_empty(), "{missing:?} of side {side} never came");
            let id = of.id.expect("it is established");
            assert!(of.stack.info(id).is_some(), "side {side} lost it");
        }
    }

    /// Whatever state it is in: timers end, and each buffer comes back.
    fn end(&mut self) {
        let last = self.now + Duration::from_secs(120);
        let mut deadlines = 0;
        loop {
            self.settle();
            let next = self.sides.iter().filter_map(|s| s.stack.next_deadline());
            let Some(next) = next.min().filter(|next| *next < last) else {
                break;
            };
            deadlines += 1;
            assert!(deadlines < EXCHANGE_MAX, "time stands still");
            self.advance(next.max(self.now));
        }
        for side in 0..2 {
            let ids: Vec<_> = self.sides[side].stack.associations().collect();
            for id in ids {
                self.sides[side].stack.abort(self.now, id, b"enough");
            }
            self.collect();
            assert_eq!(self.sides[side].stack.associations().count(), 0);
            assert_eq!(self.sides[side].lent, 0, "buffers of side {side} are gone");
        }
    }
}
