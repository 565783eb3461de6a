use super::*;

const HALF: u32 = 4096;
const CREDITS: u16 = 8;

fn hello() -> Hello {
    Hello {
        credits: CREDITS,
        targets: Entry::default(),
        iomap_entries: 0,
        buffer: half_at(0),
    }
}

fn half_at(offset: u32) -> Entry {
    Entry {
        addr: offset.into(),
        key: 1,
        length: HALF,
    }
}

/// A sender and a receiver whose ring is at address 0, with nothing between them.
struct Pair {
    sender: Sender,
    receiver: Receiver,
    next_target: usize,
    memory: Vec<u8>,
    ring: Vec<u8>,
}

impl Pair {
    fn new(ring: u32, slots: u32) -> Self {
        Self {
            sender: Sender::new(&hello(), ring, slots),
            receiver: Receiver::new(HALF, CREDITS),
            next_target: 1,
            memory: vec![0; 2 * HALF as usize],
            ring: vec![0; ring as usize],
        }
    }

    /// Sends as much as goes in one message, which leaves at once; how many bytes it was.
    fn send(&mut self, bytes: &[u8]) -> usize {
        let length = self.sender.room().min(bytes.len() as u32);
        if length == 0 {
            return 0;
        }
        let part = self.sender.take(length);
        let (from, count) = (part.offset as usize, length as usize);
        self.ring[from..from + count].copy_from_slice(&bytes[..count]);
        let to = part.to.addr as usize;
        assert_eq!(part.to.length, length);
        self.memory[to..to + count].copy_from_slice(&self.ring[from..from + count]);
        self.receiver.arrived(length).unwrap();
        self.sender.message_left(length);
        count
    }

    fn read(&mut self, most: u32) -> Vec<u8> {
        let (at, count) = self.receiver.unread_from(0);
        let count = count.min(most);
        self.receiver.consume(count);
        self.memory[at as usize..(at + count) as usize].to_vec()
    }

    fn tell(&mut self) {
        while let Some(grant) = self.receiver.due() {
            self.receiver.told(grant);
            if let Some(at) = grant.half_at {
                assert!(self.sender.lacks(self.next_target), "granted before use");
                self.sender.set_target(self.next_target, half_at(at));
                self.next_target = (self.next_target + 1) % TARGETS;
            }
            self.sender.allow(grant.upto);
        }
    }
}

/// A generator of numbers that need not be good.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        ((self.0 >> 33) % u64::from(limit)) as u32
    }
}

#[test]
fn every_byte_comes_once_and_in_order_whatever_the_sizes() {
    for seed in 0..200 {
        let mut numbers = Numbers(seed);
        let mut pair = Pair::new(1 + numbers.below(3 * HALF), 16);
        let sent: Vec<u8> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
        let (mut next, mut got) = (0, Vec::new());
        let mut rounds = 0;
        while got.len() < sent.len() {
            rounds += 1;
            assert!(rounds < 1_000_000, "seed {seed}: it stands still");
            match numbers.below(3) {
                0 => {
                    let most = 1 + numbers.below(2 * HALF) as usize;
                    let end = sent.len().min(next + most);
                    next += pair.send(&sent[next..end]);
                }
                1 => got.extend(pair.read(1 + numbers.below(HALF))),
                _ => pair.tell(),
            }
        }
        assert!(got == sent, "seed {seed}");
    }
}

#[test]
fn unread_messages_are_no_more_than_the_credits() {
    let mut pair = Pair::new(HALF, 64);
    pair.tell();
    let sent = (0..100).filter(|_| pair.send(&[1]) > 0).count();
    assert_eq!(sent, CREDITS.into());
    drop(pair.read(u32::MAX));
    pair.tell();
    assert!(pair.send(&[1]) > 0, "reading gives credits");
}

#[test]
fn an_entry_of_the_table_of_mapped_memory_counts_as_a_message() {
    let mut pair = Pair::new(HALF, 64);
    assert!(pair.sender.take_iomap() && pair.sender.take_iomap());
    let sent = (0..100).filter(|_| pair.send(&[1]) > 0).count();
    assert_eq!(sent, usize::from(CREDITS) - 2);
}

#[test]
fn counts_of_messages_go_round() {
    let mut pair = Pair::new(HALF, 64);
    for _ in 0..200_000 {
        pair.tell();
        assert_eq!(pair.send(&[7]), 1);
        assert_eq!(pair.read(1), [7]);
    }
}

#[test]
fn nothing_is_sent_while_all_of_the_ring_is_under_way() {
    let mut sender = Sender::new(&hello(), SEND_LOW, 64);
    let room = sender.room();
    assert_eq!(room, SEND_LOW);
    let _ = sender.take(room);
    assert_eq!(sender.room(), 0);
    sender.message_left(room);
    assert_eq!(sender.room(), SEND_LOW);
}

#[test]
fn a_message_needs_two_slots_of_the_send_queue() {
    let mut sender = Sender::new(&hello(), HALF, 3);
    let _ = sender.take(1);
    assert_eq!(sender.room(), 0);
    sender.message_left(1);
    assert!(sender.room() > 0);
}

#[test]
fn who_sends_more_than_was_granted_is_found_out() {
    let mut receiver = Receiver::new(HALF, CREDITS);
    assert!(receiver.arrived(HALF + 1).is_err());
    assert_eq!(receiver.arrived(HALF), Ok(()));
    assert!(receiver.arrived(1).is_err(), "the half is full");

    let mut receiver = Receiver::new(HALF, CREDITS);
    for _ in 0..CREDITS {
        assert_eq!(receiver.arrived(1), Ok(()));
    }
    assert!(receiver.arrived(1).is_err(), "no credits are left");
}

#[test]
fn grants_leave_a_control_message_for_the_end() {
    let mut control = Control::default();
    assert!(control.take(2, 1));
    assert!(!control.take(2, 1));
    assert!(control.take(1, 0), "the end");
    control.left(2);
    assert!(control.take(2, 1));
}
