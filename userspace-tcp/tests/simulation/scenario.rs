//! What a seed says: the engines, the flows between them, the network, and what becomes of it.

use std::time::Duration;

use userspace_tcp::{Config, CongestionControl, KeepAlive};

use crate::harness::{BytePlan, Plan, Random};

#[derive(Debug)]
pub struct Scenario {
    pub engines: Vec<EnginePlan>,
    pub flows: Vec<FlowPlan>,
    pub weather: Weather,
    pub changes: Vec<(Duration, Change)>,
}

#[derive(Debug)]
pub struct EnginePlan {
    pub config: Config,
    pub backlog: usize,
    /// It looks at what arrives, and at its clock, at multiples of this only.
    pub grain: Duration,
    /// Segments that its link takes at one time.
    pub burst: usize,
}

#[derive(Debug, Clone)]
pub struct FlowPlan {
    pub ends: [usize; 2],
    pub v6: bool,
    /// Both sides connect at the same time; otherwise the first one does.
    pub both_open: bool,
    pub at: Duration,
    /// When the first side is done with it, it is opened once more between the same ports.
    pub again: bool,
    pub plans: [Plan; 2],
    pub fate: Fate,
}

/// What becomes of a flow, some time after it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Everything arrives, and both sides close.
    Whole,
    /// Likewise, but a side stops writing early.
    Stop {
        side: usize,
        after: Duration,
    },
    Abort {
        side: usize,
        after: Duration,
    },
    /// Nothing of it arrives any more.
    Cut {
        after: Duration,
    },
    /// Nobody listens.
    Refused,
    /// A table or a SYN queue is too small: anything may end it.
    Squeezed,
}

/// What the network does with packets. Shares are of 1000.
#[derive(Debug, Clone)]
pub struct Weather {
    pub lose: u64,
    pub duplicate: u64,
    /// Of duplicates: those that come seconds later.
    pub late: u64,
    /// Packets that take up to `jitter` longer.
    pub delay: u64,
    pub jitter: Duration,
    /// What each path takes, at least; at most four times as long.
    pub way: Duration,
    /// Segments that are cut in two.
    pub split: u64,
    /// Packets with one wrong byte.
    pub corrupt: u64,
    /// ECN-capable packets that get a congestion mark.
    pub mark: u64,
    /// Frames that the link hands back unsent.
    pub refuse: u64,
    /// How long the link keeps a frame, at most.
    pub hold: Duration,
    /// Time between two packets of one path.
    pub spacing: Duration,
    /// The largest IP packet that passes, in bytes.
    pub mtu: usize,
    /// Packets that are too large and bring an ICMP error.
    pub icmp: u64,
    /// Segments that bring an ICMP error which is not true.
    pub forge: u64,
}

#[derive(Debug, Clone, Copy)]
pub enum Change {
    Mtu(usize),
    Lose(u64),
    /// Nothing arrives for so long.
    Outage(Duration),
}

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize]
}

fn micros(random: &mut Random, from: &[u64]) -> Duration {
    Duration::from_micros(pick(random, from))
}

/// Up to `most`, and short times as often as long ones.
fn some_time(random: &mut Random, most: Duration) -> Duration {
    let most = most.as_nanos() as u64 >> random.below(20);
    Duration::from_nanos(random.below(most))
}

impl Scenario {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x51b0_1a7e);
        let random = &mut random;
        let v6 = random.chance(400);
        let weather = weather(random, v6);
        let count = random.within(2, 8);
        let engines: Vec<_> = (0..count).map(|_| engine(random, &weather)).collect();
        let flows = (0..random.within(1, 7)).map(|_| flow(random, &engines, v6));
        let flows = flows.collect();
        let changes = (0..random.below(4)).map(|_| change(random, v6, weather.icmp));
        Self {
            engines,
            flows,
            changes: changes.collect(),
            weather,
        }
    }
}

fn weather(random: &mut Random, v6: bool) -> Weather {
    let bad = random.chance(850);
    let mut up_to = |most: u64| {
        if bad && random.chance(600) {
            random.below(most)
        } else {
            0
        }
    };
    let lose = up_to(200);
    let duplicate = up_to(100);
    let delay = up_to(300);
    let split = up_to(400);
    let corrupt = up_to(60);
    let mark = up_to(400);
    let refuse = up_to(50);
    let icmp = pick(random, &[1000, 1000, 500, 0]);
    Weather {
        lose,
        duplicate,
        late: pick(random, &[0, 0, 50]),
        delay,
        jitter: micros(random, &[50, 1000, 20_000, 300_000]),
        way: micros(random, &[5, 100, 1000, 30_000]),
        split,
        corrupt,
        mark,
        refuse,
        hold: micros(random, &[0, 20, 1000, 400_000]),
        spacing: Duration::from_nanos(pick(random, &[100, 1000, 12_000])),
        mtu: mtu(random, v6, icmp),
        icmp,
        forge: pick(random, &[0, 0, 20]),
    }
}

/// A path that says nothing is never narrower than what is tried in the end.
fn mtu(random: &mut Random, v6: bool, icmp: u64) -> usize {
    if random.chance(600) {
        return usize::MAX;
    }
    match (v6, icmp) {
        (true, _) => pick(random, &[1280, 1400, 1500, 4000]),
        (_, 0) => pick(random, &[576, 1280, 1400, 1500, 4000]),
        _ => pick(random, &[300, 576, 1280, 1400, 1500, 4000]),
    }
}

fn change(random: &mut Random, v6: bool, icmp: u64) -> (Duration, Change) {
    let what = match random.below(5) {
        0..=2 => Change::Mtu(mtu(random, v6, icmp)),
        3 => Change::Lose(random.below(250)),
        _ => Change::Outage(some_time(random, Duration::from_secs(20))),
    };
    (some_time(random, Duration::from_secs(10)), what)
}

fn engine(random: &mut Random, weather: &Weather) -> EnginePlan {
    let squeezed = random.chance(60);
    let keepalive = KeepAlive {
        idle: Duration::from_secs(random.within(1, 20)),
        interval: Duration::from_secs(random.within(1, 5)),
        // A peer that answers is not given up, whatever the network does to its answers.
        probes: 200,
    };
    let config = Config {
        mss: pick(random, &[1460, 1460, 536, 8960, 300]),
        receive_window: pick(random, &[1 << 20, 1 << 18, 65_535, 20_000, 3000, 100]),
        send_queue_segments: pick(random, &[256, 256, 64, 8, 2, 1]),
        connections: if squeezed { 2 } else { 64 },
        timestamps: random.chance(700),
        sack: random.chance(700),
        window_scale: random.chance(800),
        ecn: random.chance(500),
        initial_rto: Duration::from_millis(random.within(100, 1000)),
        min_rto: Duration::from_millis(random.within(50, 300)),
        max_rto: Duration::from_secs(random.within(2, 6)),
        ack_delay: Duration::from_millis(pick(random, &[0, 5, 40, 500])),
        // Those outlast the TIME-WAIT of a connection between the same ports.
        syn_retries: 200,
        user_timeout: Duration::from_secs(3000),
        keepalive: random.chance(300).then_some(keepalive),
        // Longer than the network is ever dark, and what the peer's back-off adds.
        time_wait: Duration::from_secs(random.within(60, 120)),
        fin_wait_2: pick(random, &[Duration::from_secs(300), Duration::MAX]),
        // Where nothing is told and nothing is tried nothing can be found out.
        path_mtu_probing: weather.icmp == 0 || random.chance(700),
        resets_per_second: pick(random, &[1000, 5]),
        syn_cookies: random.chance(700),
        congestion: pick(
            random,
            &[
                CongestionControl::Cubic,
                CongestionControl::NewReno,
                CongestionControl::Dctcp,
                CongestionControl::Bbr,
            ],
        ),
        pacing: random.chance(600),
        ..Config::default()
    };
    EnginePlan {
        config,
        backlog: pick(random, &[16, 16, 1, 0]),
        grain: micros(random, &[0, 0, 10, 100, 1000]),
        burst: pick(random, &[usize::MAX, 64, 1]),
    }
}

fn flow(random: &mut Random, engines: &[EnginePlan], v6: bool) -> FlowPlan {
    let first = random.below(engines.len() as u64) as usize;
    let step = random.within(1, engines.len() as u64 - 1) as usize;
    let ends = [first, (first + step) % engines.len()];
    let both_open = random.chance(120);
    let mut plans = [plan(random), plan(random)];
    let waits = random.below(2) as usize;
    plans[waits].close_after_peer = random.chance(500);
    let listener = &engines[ends[1]];
    // A connection by SYN cookie stands only when its first side has said something.
    if listener.backlog < 16 && !both_open {
        plans[0].close_after_peer = false;
    }
    let side = random.below(2) as usize;
    let after = some_time(random, Duration::from_secs(3));
    let small = |end: &EnginePlan| end.config.connections < 64;
    let drops_syns = listener.backlog < 16 && !listener.config.syn_cookies;
    let fate = if ends.iter().any(|end| small(&engines[*end])) || (drops_syns && !both_open) {
        Fate::Squeezed
    } else {
        match random.below(20) {
            0 | 1 => Fate::Stop { side, after },
            2 | 3 => Fate::Abort { side, after },
            4 => Fate::Cut { after },
            5 if !both_open => Fate::Refused,
            _ => Fate::Whole,
        }
    };
    FlowPlan {
        ends,
        v6: v6 && random.chance(500),
        both_open,
        at: some_time(random, Duration::from_secs(2)),
        again: fate == Fate::Whole && !both_open && random.chance(200),
        plans,
        fate,
    }
}

fn plan(random: &mut Random) -> Plan {
    let stream = random.chance(400).then(|| BytePlan {
        write_max: pick(random, &[1, 40, 1460, 5000, 100_000]),
        read_max: pick(random, &[1000, 100_000]),
        push_per_mille: pick(random, &[0, 100, 1000]),
        flush_per_mille: pick(random, &[0, 0, 20]),
        nodelay: random.chance(200),
        pieces_max: pick(random, &[2, 20, 4096]),
    });
    let bytes = match stream.as_ref().map(|stream| stream.write_max) {
        Some(1) => pick(random, &[0, 1, 300]),
        Some(40) => pick(random, &[0, 1, 3000]),
        _ => pick(random, &[0, 1, 100, 3000, 3000, 15_000, 15_000, 60_000]),
    };
    let segment_max = match bytes {
        15_000.. => pick(random, &[0, 0, 0, 700, 3000]),
        _ => pick(random, &[0, 0, 100, 3000]),
    };
    Plan {
        bytes,
        close_after_peer: false,
        segment_max,
        lazy_per_mille: pick(random, &[0, 0, 30, 200]),
        lazy_for: Duration::from_millis(random.within(1, 1000)),
        sip: pick(random, &[0, 0, 0, 700, 2000]),
        greedy: random.chance(300),
        stream,
        pause_per_mille: pick(random, &[0, 0, 100]),
        pause_for: Duration::from_micros(random.within(10, 50_000)),
        urgent_per_mille: pick(random, &[0, 0, 0, 100]),
    }
}
