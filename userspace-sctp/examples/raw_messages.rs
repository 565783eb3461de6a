//! One association over a raw socket: both ends send unordered messages, and check those of the other.
//!
//!     raw_messages listen|connect LOCAL REMOTE COUNT LONGEST LONGEST-OF-OTHER shutdown|abort|wait [UDP-PORT]
//!
//! With UDP-PORT its packets are in UDP (RFC 6951), both ends on that port, over a UDP socket.
//! `tests/interop/sctp/messages.c` does the same over the sockets of the kernel. Needs root. One process of its kind may run in a network
//! namespace, because each answers every INIT. After the association's end it answers the peer until it is killed.

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, ipproto, recv,
    send, socket_with,
};
use userspace_net::Instant;
use userspace_sctp::{AssocId, Config, Ends, Event, Message, Outgoing, Route, Stack};

const PORT: u16 = 4791;
const STREAMS: u32 = 16;
/// The Adaptation Code Point of DDP (RFC 5043).
const DDP: u32 = 1;
/// How long nothing is done when there is nothing to do.
const PAUSE: Duration = Duration::from_micros(100);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [
        role,
        local,
        remote,
        count,
        own_max,
        other_max,
        end,
        udp @ ..,
    ] = words.as_slice()
    else {
        return Err("seven arguments are needed: the source's first lines have them".into());
    };
    let udp: Option<u16> = udp.first().map(|port| port.parse()).transpose()?;
    let (local, remote): (IpAddr, IpAddr) = (local.parse()?, remote.parse()?);
    let listens = role == "listen";
    let exchange = Exchange {
        listens,
        own_max: own_max.parse()?,
        other_max: other_max.parse()?,
        sent: 0,
        received: 0,
        seen: vec![false; count.parse()?],
        adaptation: None,
    };
    let mut secret = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut secret)?;
    let config = Config {
        adaptation: Some(DDP),
        udp_port: udp,
        ..Config::default()
    };
    let mut node = Node {
        stack: Stack::new(config, secret, Instant::ZERO),
        socket: socket(local, remote, udp)?,
        start: std::time::Instant::now(),
        route: Route {
            ends: Ends {
                local: SocketAddr::new(local, PORT),
                remote: SocketAddr::new(remote, PORT),
            },
            udp,
        },
        id: None,
        exchange,
        posted: 0,
        message_max: usize::MAX,
        over: None,
    };
    if listens {
        node.stack.listen(node.route.ends.local)?;
        println!("event=listening port={PORT}");
    } else {
        node.route.ends.local.set_port(PORT + 1);
        node.stack.connect(Instant::ZERO, node.route)?;
    }
    node.run(end)
}

/// A socket of SCTP packets between two addresses, whatever their ports, or of UDP packets between a port of both.
fn socket(local: IpAddr, remote: IpAddr, udp: Option<u16>) -> Result<OwnedFd, Errno> {
    let family = match local {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let (kind, protocol) = match udp {
        Some(_) => (SocketType::DGRAM, ipproto::UDP),
        None => (SocketType::RAW, ipproto::SCTP),
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, kind, flags, Some(protocol))?;
    let port = udp.unwrap_or(0);
    bind(&socket, &SocketAddr::new(local, port))?;
    connect(&socket, &SocketAddr::new(remote, port))?;
    Ok(socket)
}

/// The messages of both ends.
struct Exchange {
    listens: bool,
    own_max: usize,
    other_max: usize,
    sent: u32,
    received: usize,
    seen: Vec<bool>,
    adaptation: Option<u32>,
}

/// Message `index` of the side that listens, or of the other.
fn message(listener: bool, index: u32, max: usize) -> Vec<u8> {
    let index = index as usize;
    let len = 1 + (index * 977) % max;
    let byte = |i: usize| 31 * usize::from(listener) + 7 * index + index / 256 + 13 * i + i / 256;
    // The lowest eight bits are meant.
    (0..len).map(|i| byte(i) as u8).collect()
}

impl Exchange {
    fn check(&mut self, got: &Message<'_>) {
        let index = got.protocol;
        let seen = &mut self.seen[index as usize];
        assert!(!*seen, "message {index} came twice");
        *seen = true;
        assert_eq!(u32::from(got.stream), index % STREAMS, "message {index}");
        let expected = message(!self.listens, index, self.other_max);
        assert!(
            got.payload == expected,
            "message {index} changed on its way"
        );
        self.received += 1;
    }

    fn is_all_here(&self) -> bool {
        self.received == self.seen.len()
    }
}

struct Node {
    stack: Stack<Vec<u8>>,
    socket: OwnedFd,
    start: std::time::Instant,
    route: Route,
    /// Once it is established.
    id: Option<AssocId>,
    exchange: Exchange,
    /// Messages of ours that the peer has not acknowledged.
    posted: usize,
    /// The longest message that may be posted, once the path's MTU has changed.
    message_max: usize,
    over: Option<String>,
}

impl Node {
    fn run(&mut self, end: &str) -> Result<(), Box<dyn Error>> {
        let mut is_ending = false;
        loop {
            let now = self.now();
            let mut is_busy = self.receive(now)?;
            self.stack.advance(now);
            self.events();
            self.post(now)?;
            let is_done = self.exchange.is_all_here()
                && self.posted == 0
                && self.exchange.sent as usize == self.exchange.seen.len();
            if let (Some(id), true, false) = (self.id, is_done, is_ending) {
                is_ending = true;
                match end {
                    "shutdown" => drop(self.stack.close(now, id)),
                    "abort" => {
                        self.stack.abort(now, id, b"asked for");
                        self.over = Some("aborts".to_owned());
                    }
                    _ => {}
                }
            }
            is_busy |= self.transmit(now)?;
            if let Some(how) = self.over.take() {
                let Exchange {
                    received,
                    adaptation,
                    ..
                } = self.exchange;
                let adaptation = adaptation.unwrap_or(0);
                let malformed = self.stack.counters().malformed;
                println!(
                    "event=result received={received} adaptation={adaptation} how={how} malformed={malformed}"
                );
            }
            if !is_busy {
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed()
    }

    /// `true` when there was something.
    fn receive(&mut self, now: Instant) -> Result<bool, Errno> {
        let mut buffer = [0_u8; 2048];
        let Self {
            stack,
            exchange,
            route: Route { ends, udp },
            ..
        } = self;
        let mut is_busy = false;
        for _ in 0..32 {
            let (_, len) = match recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Err(Errno::AGAIN) => break,
                // What an ICMP error has left at the socket.
                Err(Errno::CONNREFUSED | Errno::NOPROTOOPT | Errno::PROTO) => continue,
                got => got?,
            };
            is_busy = true;
            // A raw socket of IPv4 shows the IP header too.
            let header = match (ends.local, *udp) {
                (SocketAddr::V4(_), None) => usize::from(buffer[0] & 15) * 4,
                _ => 0,
            };
            let mut came = None;
            stack.receive(
                now,
                ends.local.ip(),
                ends.remote.ip(),
                *udp,
                &buffer[header..len],
                |id, got| {
                    exchange.check(&got);
                    let bytes = came.map_or(0, |(_, bytes)| bytes);
                    came = Some((id, bytes + got.payload.len()));
                },
            );
            if let Some((id, bytes)) = came {
                stack.consumed(now, id, bytes);
            }
        }
        Ok(is_busy)
    }

    fn events(&mut self) {
        while let Some((id, event)) = self.stack.poll_event() {
            match event {
                Event::Incoming(agreed) | Event::Established(agreed) => {
                    self.id = Some(id);
                    self.exchange.adaptation = agreed.adaptation;
                }
                Event::Closed => self.over = Some("shutdown".to_owned()),
                Event::Aborted(_) => self.over = Some("aborted".to_owned()),
                Event::Failed(failure) => self.over = Some(format!("\"{failure}\"")),
                Event::MtuChanged { message_max } => {
                    println!("event=mtu message_max={message_max}");
                    self.message_max = message_max;
                }
                other => println!("event=other what=\"{other:?}\""),
            }
        }
        while self.stack.poll_released().is_some() {
            self.posted -= 1;
        }
    }

    /// Posts as much as is taken.
    fn post(&mut self, now: Instant) -> Result<(), Box<dyn Error>> {
        let Some(id) = self.id else {
            return Ok(());
        };
        let exchange = &mut self.exchange;
        while (exchange.sent as usize) < exchange.seen.len() && self.stack.room(id) > 0 {
            let buffer = message(exchange.listens, exchange.sent, exchange.own_max);
            // Two timeouts in a row look like a black hole of the path. A probe shows that it is none.
            if buffer.len() > self.message_max {
                break;
            }
            let outgoing = Outgoing {
                stream: (exchange.sent % STREAMS) as u16,
                protocol: exchange.sent,
                buffer,
            };
            let posted = self.stack.post(now, id, outgoing);
            posted.map_err(|refused| refused.error)?;
            exchange.sent += 1;
            self.posted += 1;
        }
        Ok(())
    }

    /// `true` when there was something.
    fn transmit(&mut self, now: Instant) -> Result<bool, Errno> {
        let mut packet = [0_u8; 1500];
        let mut is_busy = false;
        while let Some(out) = self.stack.poll_transmit(now, &mut packet) {
            is_busy = true;
            let to = out.udp.map(|ports| ports.destination);
            assert_eq!(to, self.route.udp, "the peer's UDP port");
            match send(&self.socket, &packet[..out.len], SendFlags::empty()) {
                // Lost, as on a link that is full.
                Err(Errno::AGAIN | Errno::NOBUFS) => break,
                // What an ICMP error has left at the socket.
                Err(Errno::CONNREFUSED | Errno::NOPROTOOPT | Errno::PROTO) => {}
                sent => drop(sent?),
            }
        }
        Ok(is_busy)
    }
}
