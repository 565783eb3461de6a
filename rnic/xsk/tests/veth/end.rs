//! One end of the pair, and what it sends.

use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use rnic_steering::{ModePreference, Protocol, Steering, SteeringConfig};
use rnic_xsk::{
    ChunkSize, CopyMode, FramePool, Packet, Port, Umem, UmemConfig, XskPort, XskPortConfig,
};

use crate::common::{LEFT, LEFT_MAC, LEFT_V4, RIGHT, RIGHT_MAC, RIGHT_V4, VethPair};

pub const PORT: u16 = 7471;

/// How long a frame may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What takes the frames to `address` on an interface of this thread's namespace.
pub fn steering(interface: &str, address: &str) -> Steering {
    steering_in(interface, address, ModePreference::NativeOnly)
}

fn steering_in(interface: &str, address: &str, mode: ModePreference) -> Steering {
    let config = SteeringConfig::UNLIMITED;
    let mut steering = Steering::attach(interface, mode, &config).unwrap();
    let claimed = steering.claim(Protocol::Tcp, address.parse().unwrap(), PORT);
    claimed.unwrap();
    steering
}

/// One end: its pool, ports, and the steering that feeds them.
pub struct End {
    pub umem: Umem,
    pub pool: FramePool,
    pub ports: Vec<XskPort>,
    _steering: Steering,
}

impl End {
    /// Ports on the first `queues` queues of an interface of this thread's namespace, which get
    /// what is sent to `address`.
    pub fn open(interface: &str, address: &str, queues: u32, config: &UmemConfig) -> End {
        let (umem, mut pool) = Umem::new(config).unwrap();
        let mut steering = steering(interface, address);
        let ports = (0..queues)
            .map(|queue| {
                let mut port = XskPort::open(&umem, XskPortConfig::new(interface, queue)).unwrap();
                port.refill(&mut pool);
                steering.set_queue(0, queue, port.fd()).unwrap();
                port
            })
            .collect();
        End {
            umem,
            pool,
            ports,
            _steering: steering,
        }
    }

    /// A port for super-packets on the only queue of an interface of this thread's namespace.
    pub fn open_super(interface: &str, address: &str) -> End {
        let config = UmemConfig {
            chunk: ChunkSize::Bytes4096,
            ..UmemConfig::default()
        };
        let (umem, mut pool) = Umem::new(&config).unwrap();
        let mut steering = steering_in(interface, address, ModePreference::GenericSeveralBuffers);
        let mut config = XskPortConfig::new(interface, 0);
        config.copy_mode = CopyMode::Copy;
        config.super_packets = true;
        let mut port = XskPort::open(&umem, config).unwrap();
        port.refill(&mut pool);
        steering.set_queue(0, 0, port.fd()).unwrap();
        End {
            umem,
            pool,
            ports: vec![port],
            _steering: steering,
        }
    }

    pub fn left(pair: &VethPair, queues: u32) -> End {
        pair.enter_left();
        End::open(LEFT, LEFT_V4, queues, &UmemConfig::default())
    }

    pub fn right(pair: &VethPair, queues: u32) -> End {
        pair.enter_right();
        End::open(RIGHT, RIGHT_V4, queues, &UmemConfig::default())
    }

    /// Sends bytes; the cookie is the frame's index.
    pub fn send(&mut self, queue: usize, bytes: &[u8]) {
        let deadline = Instant::now() + PATIENCE;
        let mut frame = loop {
            match self.pool.alloc_for(bytes.len()) {
                Some(frame) => break frame,
                None => self.reclaim(),
            }
            assert!(Instant::now() < deadline, "no frame comes back");
        };
        self.umem.bytes_mut(&mut frame)[..bytes.len()].copy_from_slice(bytes);
        frame.set_len(bytes.len());
        let cookie = frame.index() as u64;
        while let Err(back) = self.ports[queue].transmit(frame, cookie) {
            frame = back;
            self.ports[queue].flush().unwrap();
            self.reclaim();
            assert!(Instant::now() < deadline, "the TX ring stays full");
        }
    }

    pub fn reclaim(&mut self) {
        for port in &mut self.ports {
            while let Some((frame, cookie)) = port.completed() {
                assert_eq!(cookie, frame.index() as u64);
                self.pool.free(frame);
            }
        }
    }

    /// Flushes until nothing is left to send.
    pub fn flush(&mut self, queue: usize) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.ports[queue].flush().unwrap();
            if self.ports[queue].unsent() == 0 {
                break;
            }
            assert!(Instant::now() < deadline, "the link takes nothing");
        }
    }

    /// Receives `count` frames from a queue, copied out.
    pub fn receive(&mut self, queue: usize, count: usize) -> Vec<Vec<u8>> {
        let deadline = Instant::now() + PATIENCE;
        let mut bytes = Vec::new();
        let mut packets: Vec<Packet> = Vec::with_capacity(64);
        while bytes.len() < count {
            self.ports[queue].receive(&mut self.pool, &mut packets, 64);
            for packet in packets.drain(..) {
                bytes.push(packet.slices(&self.umem).collect::<Vec<_>>().concat());
                self.pool.free_packet(packet);
            }
            self.ports[queue].refill(&mut self.pool);
            assert!(
                Instant::now() < deadline,
                "{} frames of {count} came",
                bytes.len()
            );
        }
        bytes
    }

    pub fn poll_readable(&self, queue: usize, timeout_ms: u64) -> bool {
        let fd = self.ports[queue].poll_fd().unwrap();
        let mut fds = [rustix::event::PollFd::new(
            &fd,
            rustix::event::PollFlags::IN,
        )];
        let timeout = Duration::from_millis(timeout_ms).try_into().unwrap();
        rustix::event::poll(&mut fds, Some(&timeout)).unwrap() == 1
    }
}

/// A TCP segment that the receiver's steering takes, with a number in its payload.
pub fn segment(to_right: bool, number: u32, payload: usize) -> Vec<u8> {
    let macs = if to_right {
        (LEFT_MAC, RIGHT_MAC)
    } else {
        (RIGHT_MAC, LEFT_MAC)
    };
    let addresses = if to_right {
        (LEFT_V4, RIGHT_V4)
    } else {
        (RIGHT_V4, LEFT_V4)
    };
    let v4 = |address: &str| address.parse::<std::net::Ipv4Addr>().unwrap().octets();
    let bytes: Vec<u8> = (0..payload as u32)
        .map(|at| number.wrapping_mul(31).wrapping_add(at) as u8)
        .collect();
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(macs.0, macs.1)
        .ipv4(v4(addresses.0), v4(addresses.1), 64)
        .tcp(PORT, PORT, number, 1000)
        .write(&mut frame, &bytes)
        .unwrap();
    frame
}
