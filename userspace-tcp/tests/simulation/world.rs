//! Virtual time: what happens, in order, until nothing is left to happen.

use std::collections::BTreeMap;
use std::time::Duration;

use userspace_net::{Endpoint, FourTuple, Instant};
use userspace_tcp::{
    ConnId, ConnectError, Event, IcmpError, KeepAlive, ResourceUsage, Segment, SegmentId, SeqNum,
    Transmit,
};

use super::engine::{Engine, Role};
use super::flow::Flow;
use super::laws::Laws;
use super::paths::{Packet, Paths};
use super::scenario::{Change, Fate, Scenario};
use super::tally::Tally;
use super::trace;
use crate::harness::{Buf, Random, packet};

/// A run that goes on for longer, or has more to do, has lost its way.
const LIMIT: Duration = Duration::from_secs(50_000);
const STEPS_MAX: u64 = 3_000_000;

/// The user timeout of those whose peer will not be there.
const USER_TIMEOUT: Duration = Duration::from_secs(20);

enum Happening {
    Packet(Packet),
    Transmitted {
        at: usize,
        conn: ConnId,
        id: SegmentId,
        buf: Buf,
    },
    Wake {
        at: usize,
    },
    Icmp {
        to: usize,
        tuple: FourTuple,
        seq: SeqNum,
        error: IcmpError,
        forged: bool,
    },
    Open(Role),
    Fate(usize),
    Change(Change),
}

pub struct World {
    pub tally: Tally,
    engines: Vec<Engine>,
    flows: Vec<Flow>,
    paths: Paths,
    random: Random,
    now: Instant,
    to_come: BTreeMap<(Instant, u64), Happening>,
    count: u64,
    laws: Laws,
    /// Engines that have something to do in this moment.
    dirty: Vec<bool>,
}

impl World {
    pub fn new(scenario: &Scenario, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = scenario.engines.len();
        let engines = scenario.engines.iter().enumerate();
        let mut engines: Vec<_> = engines.map(|(i, plan)| Engine::new(i, plan)).collect();
        for (index, plan) in scenario.engines.iter().enumerate() {
            for v6 in [false, true] {
                let local = Endpoint::new(Engine::addr(index, v6), 7000);
                engines[index]
                    .stack
                    .listen(local, plan.backlog)
                    .expect("nobody listens");
            }
        }
        let now = Instant::ZERO + Duration::from_secs(1);
        let paths = Paths::new(scenario.weather.clone(), count, &mut random);
        let mut world = Self {
            tally: Tally::default(),
            engines,
            flows: Vec::new(),
            paths,
            random,
            now,
            to_come: BTreeMap::new(),
            count: 0,
            laws: Laws::default(),
            dirty: vec![false; count],
        };
        for (number, plan) in scenario.flows.iter().enumerate() {
            world.add(Flow::new(plan.clone(), number, 0), now + plan.at);
        }
        for &(after, change) in &scenario.changes {
            world.schedule(now + after, Happening::Change(change));
        }
        world
    }

    fn add(&mut self, flow: Flow, at: Instant) {
        let index = self.flows.len();
        let plan = &flow.plan;
        for side in 0..2 {
            let role = Role { flow: index, side };
            let engine = &mut self.engines[plan.ends[side]];
            engine.roles.push(role);
            engine.expected.insert(flow.tuple(side), role);
        }
        let after = match plan.fate {
            Fate::Stop { after, .. } | Fate::Abort { after, .. } | Fate::Cut { after } => {
                Some(after)
            }
            Fate::Whole | Fate::Refused | Fate::Squeezed => None,
        };
        let both = plan.both_open;
        self.flows.push(flow);
        for side in 0..=usize::from(both) {
            self.schedule(at, Happening::Open(Role { flow: index, side }));
        }
        if let Some(after) = after {
            self.schedule(at + after, Happening::Fate(index));
        }
    }

    /// Until nothing is left to happen.
    pub fn run(&mut self) {
        let end = self.now + LIMIT;
        for _ in 0..STEPS_MAX {
            let happening = self.to_come.keys().next().map(|&(at, _)| at);
            let deadlines = self.engines.iter().filter_map(|engine| {
                let at = engine.stack.next_deadline()?;
                Some(engine.looks_at(at))
            });
            let Some(next) = deadlines.chain(happening).min() else {
                return;
            };
            self.now = self.now.max(next);
            assert!(self.now < end, "it goes on and on: {}", self.states());
            self.let_time_pass();
            while let Some(entry) = self.to_come.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let happening = entry.remove();
                self.happen(happening);
            }
            for index in 0..self.engines.len() {
                if std::mem::take(&mut self.dirty[index]) {
                    self.settle(index);
                }
            }
        }
        panic!("too much happens: {}", self.states());
    }

    fn states(&self) -> String {
        let state = |(index, engine): (usize, &Engine)| {
            let infos = engine
                .by_conn
                .iter()
                .filter_map(|(conn, role)| Some((role, engine.stack.info(*conn)?)));
            let infos: Vec<_> = infos.collect();
            format!("engine {index}: {infos:?}\n")
        };
        self.engines.iter().enumerate().map(state).collect()
    }

    fn let_time_pass(&mut self) {
        for (index, engine) in self.engines.iter_mut().enumerate() {
            let deadline = engine.stack.next_deadline();
            if deadline.is_none_or(|at| at > self.now) {
                continue;
            }
            engine.stack.advance(self.now);
            let next = engine.stack.next_deadline();
            assert!(
                next.is_none_or(|at| at > self.now),
                "a deadline that does not go away"
            );
            self.dirty[index] = true;
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Packet(packet) => self.arrive(&packet),
            Happening::Transmitted { at, conn, id, buf } => {
                let engine = &mut self.engines[at];
                if let Some(buf) = engine.stack.transmitted(conn, id, buf) {
                    engine.buffers.free(buf);
                }
                self.dirty[at] = true;
            }
            Happening::Wake { at } => self.dirty[at] = true,
            Happening::Icmp {
                to,
                tuple,
                seq,
                error,
                forged,
            } => {
                let taken = self.engines[to].stack.icmp(self.now, tuple, seq, error);
                let now = self.now;
                trace(|| format!("{now:?} {tuple} {error:?} about {seq:?}: {taken}"));
                assert!(!(taken && forged), "a forged error was believed");
                self.dirty[to] = true;
            }
            Happening::Open(role) => self.open(role),
            Happening::Fate(flow) => self.meet_fate(flow),
            Happening::Change(change) => self.paths.change(self.now, change),
        }
    }

    fn open(&mut self, role: Role) {
        let flow = &self.flows[role.flow];
        let tuple = flow.tuple(role.side);
        let index = flow.plan.ends[role.side];
        let engine = &mut self.engines[index];
        let options = engine.options(flow.plan.v6);
        match engine.stack.connect(self.now, tuple, options) {
            Ok(conn) => self.bind(index, conn, role),
            Err(ConnectError::TooMany { .. }) if flow.plan.fate == Fate::Squeezed => {}
            Err(error) => panic!("{error}"),
        }
        self.dirty[index] = true;
    }

    /// Names the connection of a side.
    fn bind(&mut self, index: usize, conn: ConnId, role: Role) {
        let engine = &mut self.engines[index];
        engine.by_conn.insert(conn, role);
        let flow = &mut self.flows[role.flow];
        flow.apps[role.side].conn = Some(conn);
        if flow.is_forsaken() {
            let keepalive = KeepAlive {
                idle: Duration::from_secs(5),
                interval: Duration::from_secs(1),
                probes: 3,
            };
            let stack = &mut engine.stack;
            assert!(stack.set_keepalive(conn, self.now, Some(keepalive)));
            assert!(stack.set_user_timeout(conn, self.now, USER_TIMEOUT));
        }
    }

    fn meet_fate(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        match flow.plan.fate {
            Fate::Whole | Fate::Refused | Fate::Squeezed => {}
            Fate::Stop { side, .. } => {
                let app = &mut flow.apps[side];
                app.plan.bytes = app.sent;
                self.dirty[flow.plan.ends[side]] = true;
            }
            Fate::Abort { side, .. } => {
                let at = flow.plan.ends[side];
                let app = &mut flow.apps[side];
                if let Some(conn) = app.conn.filter(|_| !app.over) {
                    assert!(self.engines[at].stack.abort(conn), "it was not over");
                    app.over = true;
                    flow.aborted = Some(side);
                    self.tally.add("aborted", 1);
                }
                self.dirty[at] = true;
            }
            Fate::Cut { .. } => flow.cut_at = Some(self.now),
        }
    }

    fn arrive(&mut self, packet: &Packet) {
        let index = packet.to;
        self.dirty[index] = true;
        let tuple = FourTuple {
            local: packet.tuple.remote,
            remote: packet.tuple.local,
        };
        let sound = packet::is_sound(tuple, &packet.bytes);
        assert_eq!(sound, !packet.corrupted, "what the checksum says");
        if !sound {
            return;
        }
        let segment = Segment::parse(&packet.bytes).expect("what we send can be read");
        let segment = segment.with_ecn(packet.ecn);
        let now = self.now;
        trace(|| {
            format!(
                "{now:?} {tuple} in {:?} {:?}",
                packet.bytes.len(),
                segment.header
            )
        });
        let engine = &mut self.engines[index];
        let options = engine.options(tuple.local.addr.is_ipv6());
        let received = engine.stack.receive(self.now, tuple, &segment, options);
        self.fetch_events(index);
        let engine = &mut self.engines[index];
        let Some(conn) = received.conn.filter(|_| !received.new.is_empty()) else {
            return;
        };
        if engine.ghosts.contains(&conn) {
            return;
        }
        let role = engine.by_conn[&conn];
        let app = &mut self.flows[role.flow].apps[role.side];
        app.take(
            &engine.stack,
            &mut engine.buffers,
            &received,
            segment.payload,
        );
    }

    fn fetch_events(&mut self, index: usize) {
        while let Some((conn, event)) = self.engines[index].stack.poll_event() {
            if let Event::Incoming { tuple, .. } = event {
                self.come_in(index, conn, tuple);
            }
            let now = self.now;
            trace(|| format!("{now:?} {conn:?} {event:?}"));
            let engine = &self.engines[index];
            let Some(&role) = engine.by_conn.get(&conn) else {
                assert!(engine.ghosts.contains(&conn), "{event:?} of nobody");
                continue;
            };
            let flow = &mut self.flows[role.flow];
            let app = &mut flow.apps[role.side];
            // Events may have been on their way when it was aborted.
            if app.over && flow.aborted == Some(role.side) {
                continue;
            }
            app.on_event(event);
            if app.over {
                flow.over_at[role.side].get_or_insert(self.now);
            }
            if event == Event::TimedOut {
                self.tally.add("timed out", 1);
            }
        }
    }

    /// A connection to a listener is established.
    fn come_in(&mut self, index: usize, conn: ConnId, tuple: FourTuple) {
        let engine = &mut self.engines[index];
        let role = *engine.expected.get(&tuple).expect("nobody else connects");
        let known = self.flows[role.flow].apps[role.side].conn.is_some();
        if known {
            // An old ACK brought an old SYN cookie back to life: that is what cookies cost.
            let accepted = engine.stack.counters().cookies_accepted;
            assert!(accepted > 0, "a connection that nobody opened");
            engine.stack.abort(conn);
            engine.ghosts.insert(conn);
        } else {
            self.bind(index, conn, role);
        }
    }

    /// Events, applications, then everything that wants to go out.
    fn settle(&mut self, index: usize) {
        self.fetch_events(index);
        self.engines[index].fetch_released();
        for at in 0..self.engines[index].roles.len() {
            let role = self.engines[index].roles[at];
            self.let_run(index, role);
        }
        let burst = self.engines[index].burst;
        let mut taken = 0;
        while taken < burst {
            let Some(transmit) = self.engines[index].stack.poll_transmit(self.now) else {
                break;
            };
            self.put_on_link(index, transmit);
            taken += 1;
        }
        if taken == burst {
            let later = self.now + self.paths.weather.spacing * burst as u32;
            self.schedule(later, Happening::Wake { at: index });
        }
        self.fetch_events(index);
        self.engines[index].fetch_released();
    }

    fn let_run(&mut self, index: usize, role: Role) {
        let engine = &mut self.engines[index];
        let app = &mut self.flows[role.flow].apps[role.side];
        let before = app.wakes();
        app.run(
            self.now,
            &mut engine.stack,
            &mut engine.buffers,
            &mut self.random,
        );
        for (before, after) in before.into_iter().zip(app.wakes()) {
            if let Some(until) = after.filter(|_| before != after) {
                let at = self.engines[index].looks_at(until);
                self.schedule(at, Happening::Wake { at: index });
            }
        }
        self.reopen(role);
    }

    /// Opens a flow again whose first side is done with it.
    fn reopen(&mut self, role: Role) {
        let flow = &mut self.flows[role.flow];
        if !flow.plan.again || flow.reopened || role.side != 0 || !flow.apps[0].over {
            return;
        }
        let conn = flow.apps[0].conn.expect("it was opened");
        let engine = &self.engines[flow.plan.ends[0]];
        if engine.stack.info(conn).is_some() {
            return;
        }
        flow.reopened = true;
        self.tally.add("reopened", 1);
        let mut plan = flow.plan.clone();
        plan.again = false;
        // The number is what the ports are made of.
        let number = usize::from(flow.tuple(0).local.port - 40_000);
        self.add(Flow::new(plan, number, 1), self.now);
    }

    fn put_on_link(&mut self, from: usize, transmit: Transmit<Buf>) {
        let bytes = packet::emit(&transmit);
        let Transmit {
            conn,
            tuple,
            header,
            payload,
            ecn,
            fragment_to,
        } = transmit;
        let now = self.now;
        trace(|| {
            let len = bytes.len();
            format!("{now:?} {tuple} out {len} {fragment_to:?} {header:?}")
        });
        let engine = &self.engines[from];
        let header_len = header.header_len();
        let v6 = tuple.local.addr.is_ipv6();
        let most = usize::from(engine.options(v6).mss) + 20;
        let syn_options = if header.flags.syn() { 40 } else { 0 };
        assert!(
            bytes.len() <= most.max(20 + syn_options),
            "longer than a packet"
        );
        if let Some(conn) = conn {
            let payload = payload.as_ref().map(|payload| (payload.id, payload.len));
            self.laws.check((from, conn), &header, payload);
        }
        let mut refused = false;
        if let (Some(conn), Some(payload)) = (conn, payload) {
            refused = self.random.chance(self.paths.weather.refuse);
            let hold = self.paths.weather.hold.as_nanos() as u64;
            let hold = if refused {
                self.tally.add("frames refused", 1);
                0
            } else {
                self.random.below(hold + 1)
            };
            let at = self.now + Duration::from_nanos(hold);
            let (id, buf) = (payload.id, payload.buf);
            let at_engine = Happening::Transmitted {
                at: from,
                conn,
                id,
                buf,
            };
            self.schedule(at, at_engine);
        }
        if refused || self.is_cut(from, tuple) {
            return;
        }
        if self.random.chance(self.paths.weather.forge) {
            self.forge_error(from, tuple, header.seq);
        }
        let ip = if v6 { 40 } else { 20 };
        let size = fragment_to.map_or(bytes.len() + ip, |mtu| mtu as usize);
        self.tally
            .add("fragmented", u64::from(fragment_to.is_some()));
        if size > self.paths.weather.mtu {
            self.too_big(from, tuple, header.seq);
            return;
        }
        let packet = Packet {
            from,
            to: self.engine_of(tuple),
            tuple,
            bytes,
            header_len,
            ecn,
            corrupted: false,
        };
        let arrivals = self
            .paths
            .carry(self.now, packet, &mut self.random, &mut self.tally);
        for (at, packet) in arrivals {
            let at = self.engines[packet.to].looks_at(at);
            self.schedule(at, Happening::Packet(packet));
        }
    }

    fn engine_of(&self, tuple: FourTuple) -> usize {
        let v6 = tuple.remote.addr.is_ipv6();
        let mut all = 0..self.engines.len();
        all.find(|&index| Engine::addr(index, v6) == tuple.remote.addr)
            .expect("they speak to each other only")
    }

    fn is_cut(&mut self, from: usize, tuple: FourTuple) -> bool {
        let role = self.engines[from].expected.get(&tuple);
        let cut = role.is_some_and(|role| self.flows[role.flow].cut_at.is_some());
        self.tally.add("packets cut off", u64::from(cut));
        cut
    }

    /// The network drops a packet for its size, and tells its sender, or not.
    fn too_big(&mut self, to: usize, tuple: FourTuple, seq: SeqNum) {
        self.tally.add("packets too large", 1);
        if self.random.chance(self.paths.weather.icmp) {
            let at = self.now + self.paths.weather.way;
            let mtu = self.paths.weather.mtu as u32;
            let error = Happening::Icmp {
                to,
                tuple,
                seq,
                error: IcmpError::PacketTooBig { mtu },
                forged: false,
            };
            self.schedule(at, error);
        }
    }

    /// Somebody who knows the connection, but not what is under way.
    fn forge_error(&mut self, to: usize, tuple: FourTuple, seq: SeqNum) {
        self.tally.add("forged errors", 1);
        let mtu = self.random.below(2000) as u32;
        let error = match self.random.below(3) {
            0 => IcmpError::Unreachable { hard: true },
            1 => IcmpError::Unreachable { hard: false },
            _ => IcmpError::PacketTooBig { mtu },
        };
        let forged = Happening::Icmp {
            to,
            tuple,
            seq: seq.add(1 << 31),
            error,
            forged: true,
        };
        self.schedule(self.now, forged);
    }

    fn schedule(&mut self, at: Instant, happening: Happening) {
        self.count += 1;
        self.to_come.insert((at, self.count), happening);
    }

    /// What must hold when nothing is left to happen.
    pub fn judge(mut self) -> Tally {
        for flow in &mut self.flows {
            for (side, app) in flow.apps.iter_mut().enumerate() {
                app.forget(&mut self.engines[flow.plan.ends[side]].buffers);
            }
            flow.judge();
        }
        for (index, engine) in self.engines.iter().enumerate() {
            let stack = &engine.stack;
            assert_eq!(
                stack.resource_usage(),
                ResourceUsage::default(),
                "engine {index}"
            );
            assert_eq!(stack.next_deadline(), None, "engine {index}: a timer");
            assert_eq!(engine.buffers.alive(), 0, "engine {index}: lost frames");
            assert_eq!(
                engine.buffers.dropped(),
                0,
                "engine {index}: dropped frames"
            );
            let totals = stack.totals();
            for (sort, count) in [
                ("retransmits", totals.retransmits),
                ("timeouts", totals.timeouts),
                ("fast recoveries", totals.fast_recoveries),
                ("tail probes", totals.tail_probes),
                ("needless recoveries", totals.needless_recoveries),
                ("spurious timeouts", totals.spurious_timeouts),
                ("window probes", totals.probes),
                ("keepalives", totals.keepalives),
                ("ecn reductions", totals.ecn_reductions),
                ("cookies accepted", stack.counters().cookies_accepted),
            ] {
                self.tally.add(sort, count);
            }
        }
        self.tally
    }
}
