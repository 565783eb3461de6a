//! A stack with one connection, and the application above it.

use std::net::Ipv4Addr;

use userspace_net::{FourTuple, Instant};
use userspace_tcp::{Config, ConnOptions, Segment, Stack};

use super::{Application, Buf, Buffers, Plan, Random, packet};

pub struct Endpoint {
    pub stack: Stack<Buf>,
    pub buffers: Buffers,
    pub options: ConnOptions,
    pub app: Application,
}

impl Endpoint {
    pub fn new(side: usize, config: Config, plan: Plan) -> Self {
        let voices = [side as u64, 1 - side as u64];
        Self {
            options: ConnOptions { mss: config.mss },
            stack: Stack::new(config, [side as u8; 16], Instant::ZERO),
            buffers: Buffers::default(),
            app: Application::new(voices[0], voices[1], plan),
        }
    }

    pub fn addr(side: usize) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, 0, 1 + side as u8)
    }

    /// Takes the TCP bytes of a packet.
    pub fn receive(&mut self, now: Instant, tuple: FourTuple, bytes: &[u8]) {
        assert!(packet::is_sound(tuple, bytes));
        let segment = Segment::parse(bytes).unwrap();
        let received = self.stack.receive(now, tuple, &segment, self.options);
        self.fetch_events();
        self.app
            .take(&self.stack, &mut self.buffers, &received, segment.payload);
    }

    pub fn fetch_events(&mut self) {
        while let Some((conn, event)) = self.stack.poll_event() {
            assert_eq!(*self.app.conn.get_or_insert(conn), conn);
            self.app.on_event(event);
        }
    }

    /// Lets the application read, write and close.
    pub fn run(&mut self, now: Instant, random: &mut Random) {
        self.fetch_released();
        self.app
            .run(now, &mut self.stack, &mut self.buffers, random);
    }

    pub fn fetch_released(&mut self) {
        while let Some(buf) = self.stack.poll_released() {
            self.buffers.free(buf);
        }
    }
}
