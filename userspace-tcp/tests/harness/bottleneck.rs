//! A dumbbell: flows with as much to send as they may, through one queue of one link, under virtual
//! time. Packets are headers and lengths only, so that minutes of traffic take seconds.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::time::Duration;

use userspace_net::{Ecn, FourTuple, Instant, checksum};
use userspace_tcp::{
    Config, ConnId, ConnOptions, Info, Outgoing, Segment, Stack, TcpHeader, Transmit,
};

use super::Random;

/// Bytes of link and IP headers of each packet.
const OVERHEAD: u64 = 14 + 20;

/// The link in the middle.
#[derive(Debug, Clone, Copy)]
pub struct Bottleneck {
    /// Bits a second.
    pub rate: u64,
    /// Propagation, each way.
    pub delay: Duration,
    /// Bytes that may wait; what comes then is dropped.
    pub queue: u64,
    /// Bytes from which on packets that can be marked are.
    pub mark: Option<u64>,
    /// Of a million packets with bytes, so many are lost by chance, behind the queue.
    pub loss: u64,
    /// Of a million packets with bytes, so many are overtaken by five, behind the queue.
    pub reorder: u64,
    /// Of a million ACKs, so many are lost.
    pub ack_loss: u64,
}

struct Packet {
    tuple: FourTuple,
    header: TcpHeader,
    len: u32,
    ecn: Ecn,
}

enum Happening {
    Start(usize),
    /// The link has sent the first packet of the queue.
    Departure,
    Data(Packet),
    Ack(Packet),
}

/// One direction of one connection.
#[derive(Debug, Clone)]
pub struct Flow {
    pub conn: Option<ConnId>,
    /// Bytes that have come in order.
    pub delivered: u64,
}

pub struct Dumbbell {
    pub now: Instant,
    pub link: Bottleneck,
    /// Of each first duration the senders don't run for the second: others have their core.
    pub away: Option<(Duration, Duration)>,
    pub flows: Vec<Flow>,
    pub drops: u64,
    pub losses: u64,
    pub marks: u64,
    pub queue_max: u64,
    /// Sum of bytes in the queue times nanoseconds, since [`Dumbbell::reset_queue_statistics`].
    area: u128,
    area_from: Instant,
    area_to: Instant,
    /// The flows are theirs, one after the other.
    senders: Vec<Stack<()>>,
    receivers: Stack<()>,
    receiving: Vec<Option<ConnId>>,
    queue: VecDeque<Packet>,
    queued: u64,
    to_come: BTreeMap<(Instant, u64), Happening>,
    count: u64,
    last_ack_at: Instant,
    random: Random,
}

/// The port of the first flow.
const FIRST_PORT: u16 = 10_000;
const MSS: u16 = 1460;
const OPTIONS: ConnOptions = ConnOptions { mss: MSS };
static ZEROS: [u8; MSS as usize] = [0; MSS as usize];

impl Dumbbell {
    /// Flows that start at the given times.
    pub fn new(link: Bottleneck, config: Config, starts: &[Duration], seed: u64) -> Self {
        Self::of_several(link, &[config], starts, seed)
    }

    /// The first flow is configured as the first sender, and so on, over and over; receivers as the last.
    pub fn of_several(
        link: Bottleneck,
        configs: &[Config],
        starts: &[Duration],
        seed: u64,
    ) -> Self {
        let config = configs.last().unwrap();
        let mut dumbbell = Self {
            now: Instant::ZERO + Duration::from_secs(1),
            link,
            away: None,
            flows: Vec::new(),
            drops: 0,
            losses: 0,
            marks: 0,
            queue_max: 0,
            area: 0,
            area_from: Instant::ZERO,
            area_to: Instant::ZERO,
            senders: configs
                .iter()
                .map(|config| Stack::new(config.clone(), [1; 16], Instant::ZERO))
                .collect(),
            receivers: Stack::new(config.clone(), [2; 16], Instant::ZERO),
            receiving: vec![None; starts.len()],
            queue: VecDeque::new(),
            queued: 0,
            to_come: BTreeMap::new(),
            count: 0,
            last_ack_at: Instant::ZERO,
            random: Random::new(seed),
        };
        dumbbell.receivers.listen(local(1, 7000), 100).unwrap();
        for (index, start) in starts.iter().enumerate() {
            dumbbell.flows.push(Flow {
                conn: None,
                delivered: 0,
            });
            dumbbell.schedule(dumbbell.now + *start, Happening::Start(index));
        }
        dumbbell.reset_queue_statistics();
        dumbbell
    }

    pub fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            self.settle();
            let happening = self.to_come.keys().next().map(|&(at, _)| at);
            let senders = self.senders.iter().filter_map(Stack::next_deadline);
            let senders = senders.map(|at| self.awake(at.max(self.now)));
            let deadlines = senders.chain(self.receivers.next_deadline());
            let back = Some(self.awake(self.now)).filter(|back| *back > self.now);
            let next = deadlines.chain(happening).chain(back).min();
            let Some(next) = next.filter(|&next| next <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            if self.awake(self.now) == self.now {
                for sender in &mut self.senders {
                    sender.advance(self.now);
                }
            }
            self.receivers.advance(self.now);
            while let Some(entry) = self.to_come.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let happening = entry.remove();
                self.happen(happening);
            }
        }
    }

    /// When the senders run, from `at` on.
    fn awake(&self, at: Instant) -> Instant {
        let Some((each, away)) = self.away else {
            return at;
        };
        let since = at.saturating_duration_since(Instant::ZERO).as_nanos() % each.as_nanos();
        let left = away.saturating_sub(Duration::from_nanos(since as u64));
        at + left
    }

    pub fn info(&self, flow: usize) -> Info {
        let conn = self.flows[flow].conn.unwrap();
        self.senders[flow % self.senders.len()].info(conn).unwrap()
    }

    /// The sender of the flow from this port.
    fn sender(&mut self, port: u16) -> &mut Stack<()> {
        let index = usize::from(port - FIRST_PORT) % self.senders.len();
        &mut self.senders[index]
    }

    /// Bytes delivered in `duration` from now on, by each flow.
    pub fn measure(&mut self, duration: Duration) -> Vec<u64> {
        let before: Vec<u64> = self.flows.iter().map(|flow| flow.delivered).collect();
        self.run(duration);
        let flows = self.flows.iter().zip(before);
        flows
            .map(|(flow, before)| flow.delivered - before)
            .collect()
    }

    /// Share of the link that `bytes` of payload in `duration` fill.
    pub fn utilization(&self, bytes: u64, duration: Duration) -> f64 {
        // Payload that a full packet carries.
        let full = f64::from(MSS - 12);
        let packet = full + 32.0 + OVERHEAD as f64;
        bytes as f64 * 8.0 / self.link.rate as f64 / duration.as_secs_f64() * packet / full
    }

    pub fn reset_queue_statistics(&mut self) {
        self.account();
        self.area = 0;
        self.area_from = self.now;
        self.queue_max = self.queued;
    }

    /// Bytes in the queue, averaged over time.
    pub fn queue_mean(&mut self) -> f64 {
        self.account();
        let time = self.now.saturating_duration_since(self.area_from);
        self.area as f64 / time.as_nanos() as f64
    }

    fn account(&mut self) {
        let time = self.now.saturating_duration_since(self.area_to);
        self.area += u128::from(self.queued) * time.as_nanos();
        self.area_to = self.now;
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Start(flow) => {
                let port = FIRST_PORT + flow as u16;
                let tuple = FourTuple::new(local(0, port), local(1, 7000));
                let now = self.now;
                let conn = self.sender(port).connect(now, tuple, OPTIONS).unwrap();
                self.flows[flow].conn = Some(conn);
            }
            Happening::Departure => {
                self.account();
                let packet = self.queue.pop_front().unwrap();
                self.queued -= bytes(&packet);
                if self.link.loss > 0 && self.random.below(1_000_000) < self.link.loss {
                    self.losses += 1;
                } else {
                    let overtaken =
                        self.link.reorder > 0 && self.random.below(1_000_000) < self.link.reorder;
                    let late = if overtaken {
                        5 * self.time_of(bytes(&packet))
                    } else {
                        Duration::ZERO
                    };
                    let at = self.now + self.link.delay + late;
                    self.schedule(at, Happening::Data(packet));
                }
                self.depart();
            }
            Happening::Data(packet) => {
                let flow = usize::from(packet.header.source_port - FIRST_PORT);
                let segment =
                    Segment::new(packet.header, &ZEROS[..packet.len as usize]).with_ecn(packet.ecn);
                let tuple = FourTuple::new(packet.tuple.remote, packet.tuple.local);
                let received = self.receivers.receive(self.now, tuple, &segment, OPTIONS);
                if let Some(conn) = received.conn {
                    self.receiving[flow] = Some(conn);
                    self.flows[flow].delivered = received.in_order_to;
                    self.receivers.consumed(conn, received.in_order_to);
                }
            }
            Happening::Ack(packet) => {
                let segment = Segment::new(packet.header, &[]).with_ecn(packet.ecn);
                let tuple = FourTuple::new(packet.tuple.remote, packet.tuple.local);
                let now = self.now;
                self.sender(tuple.local.port)
                    .receive(now, tuple, &segment, OPTIONS);
            }
        }
    }

    fn settle(&mut self) {
        for stack in self.senders.iter_mut().chain([&mut self.receivers]) {
            while stack.poll_event().is_some() {}
        }
        let awake = self.awake(self.now) == self.now;
        let count = self.senders.len();
        for (index, flow) in self.flows.iter().enumerate() {
            let Some(conn) = flow.conn.filter(|_| awake) else {
                continue;
            };
            let sender = &mut self.senders[index % count];
            let mss = sender.mss(conn);
            while sender.send_room(conn) >= mss {
                let outgoing = Outgoing {
                    buf: (),
                    len: mss as u32,
                    payload_sum: checksum::PartialSum::ZERO,
                };
                if sender.send(conn, self.now, outgoing).is_err() {
                    break;
                }
            }
        }
        for index in (0..count).filter(|_| awake) {
            while let Some(transmit) = self.senders[index].poll_transmit(self.now) {
                let packet = self.packet(index, transmit);
                self.enqueue(packet);
            }
            while self.senders[index].poll_released().is_some() {}
        }
        while let Some(transmit) = self.receivers.poll_transmit(self.now) {
            let packet = Packet {
                tuple: transmit.tuple,
                header: transmit.header,
                len: 0,
                ecn: transmit.ecn,
            };
            // A little noise, or flows fall into step; but nothing overtakes.
            let noise = Duration::from_nanos(self.random.below(20_000));
            let at = self.last_ack_at.max(self.now + self.link.delay + noise);
            let at = self.awake(at);
            self.last_ack_at = at;
            if self.link.ack_loss == 0 || self.random.below(1_000_000) >= self.link.ack_loss {
                self.schedule(at, Happening::Ack(packet));
            }
        }
    }

    fn packet(&mut self, sender: usize, transmit: Transmit<()>) -> Packet {
        let mut len = 0;
        if let (Some(conn), Some(payload)) = (transmit.conn, transmit.payload) {
            len = payload.len;
            let _ = self.senders[sender].transmitted(conn, payload.id, ());
        }
        Packet {
            tuple: transmit.tuple,
            header: transmit.header,
            len,
            ecn: transmit.ecn,
        }
    }

    fn enqueue(&mut self, mut packet: Packet) {
        self.account();
        if self.queued + bytes(&packet) > self.link.queue {
            self.drops += 1;
            return;
        }
        if self.link.mark.is_some_and(|mark| self.queued >= mark) && packet.ecn != Ecn::NotEct {
            packet.ecn = Ecn::Ce;
            self.marks += 1;
        }
        self.queued += bytes(&packet);
        self.queue_max = self.queue_max.max(self.queued);
        self.queue.push_back(packet);
        if self.queue.len() == 1 {
            self.depart();
        }
    }

    fn depart(&mut self) {
        if let Some(packet) = self.queue.front() {
            let at = self.now + self.time_of(bytes(packet));
            self.schedule(at, Happening::Departure);
        }
    }

    /// What so many bytes take on the link.
    fn time_of(&self, bytes: u64) -> Duration {
        Duration::from_nanos(bytes * 8 * 1_000_000_000 / self.link.rate)
    }

    fn schedule(&mut self, at: Instant, happening: Happening) {
        self.count += 1;
        self.to_come.insert((at, self.count), happening);
    }
}

fn bytes(packet: &Packet) -> u64 {
    OVERHEAD + packet.header.header_len() as u64 + u64::from(packet.len)
}

fn local(side: u8, port: u16) -> userspace_net::Endpoint {
    userspace_net::Endpoint::new(Ipv4Addr::new(198, 18, 0, 1 + side).into(), port)
}
