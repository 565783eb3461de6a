//! Copies a file to another host by RDMA Reads, with a progress bar: the async API.
//!
//! ```text
//! file_copy receive :7000 COPY                # on 198.18.0.2, by the daemon there
//! file_copy send 198.18.0.2:7000 FILE         # on another host
//! ```
//!
//! The sender registers its file for remote reading and Sends an offer: where it is, how long it is, and its
//! CRC-32. The receiver Reads it, a few pieces at a time, writes it to the disk, and Sends back the length and
//! the CRC-32 of what it has. The sender compares. `examples/c/copy.c` and `examples/python/copy.py` speak the
//! same (`docs/own-programs.md`).

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::time::Instant;

use rnic::{
    AcceptOptions, Access, ConnectOptions, Context, ListenOptions, MemoryRegion, ProtectionDomain,
    QpConfig, QueuePair, RemoteMemory, block_on,
};

mod common {
    pub mod open;
}
use common::open::{Failure, arguments, local, open, server};

/// RDMA Reads that may be under way.
const READS: usize = 4;
/// Bytes of each.
const PIECE: usize = 1 << 20;
/// Cells of the progress bar.
const BAR: u64 = 30;

const USAGE: &str = "usage: file_copy [<daemon socket>|embedded:<interface>] receive <address:port> \
    <file>\nor: file_copy [<...>] send <receiver's host:port> <file>";

fn main() -> Result<(), Failure> {
    let (place, arguments) = arguments(&["receive", "send"]);
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let context = || open(place.as_deref());
    match words.as_slice() {
        ["receive", address, file] => {
            let address = local(address)?;
            block_on(receive(&context()?, address, File::create(file)?))
        }
        ["send", address, file] => {
            let address = server(address)?;
            block_on(send(&context()?, address, std::fs::read(file)?))
        }
        _ => Err(USAGE.into()),
    }
}

async fn receive(context: &Context, address: SocketAddr, mut file: File) -> Result<(), Failure> {
    let end = End::new(context)?;
    let pieces = end.pd.register(READS * PIECE, Access::LOCAL_WRITE)?;
    let listener = context.listen(address, ListenOptions::default().backlog(1))?;
    println!("listening on {}", listener.local_addr());
    let request = listener.accept().await?;
    // Posted before the connection is accepted, so that no message comes too early.
    let offer = end.qp.receive(&[end.messages.slice(0..Offer::LEN)?]);
    request.accept(&end.qp, AcceptOptions::default()).await?;
    offer.await?;
    let offer = Offer::from_bytes(end.messages.to_vec(0..Offer::LEN)?.as_slice().try_into()?);

    let length = offer.file.len;
    let mut bar = Bar::new(length);
    let (mut crc, mut asked) = (Crc::default(), 0);
    let mut under_way = VecDeque::new();
    for number in 0.. {
        while under_way.len() < READS && asked < length {
            let count = (length - asked).min(PIECE as u64) as usize;
            let start = (number + under_way.len()) % READS * PIECE;
            let range = start..start + count;
            let piece = [pieces.slice(range.clone())?];
            let read = end.qp.read(&piece, offer.file.offset(asked));
            under_way.push_back((read, range));
            asked += count as u64;
        }
        let Some((read, range)) = under_way.pop_front() else {
            break;
        };
        read.await?;
        let bytes = pieces.to_vec(range)?;
        file.write_all(&bytes)?;
        crc.add(&bytes);
        bar.add(bytes.len() as u64);
    }
    bar.finish();
    file.sync_all()?;

    let answer = Answer {
        length,
        crc: crc.value(),
    };
    end.messages.write(0, &answer.to_bytes())?;
    end.qp.send(&[end.messages.slice(0..Answer::LEN)?]).await?;
    if answer.crc != offer.crc {
        return Err("the bytes that came have another CRC-32 than the sender's".into());
    }
    println!("received {length} bytes, CRC-32 {:08x}", answer.crc);
    end.qp.disconnected().await?;
    Ok(())
}

async fn send(context: &Context, address: SocketAddr, bytes: Vec<u8>) -> Result<(), Failure> {
    let end = End::new(context)?;
    let to_read = Access::LOCAL_WRITE | Access::REMOTE_READ;
    // At least one byte, so that there is memory to register.
    let file = end.pd.register(bytes.len().max(1), to_read)?;
    file.write(0, &bytes)?;
    let mut crc = Crc::default();
    crc.add(&bytes);
    let offer = Offer {
        file: file.remote(0..bytes.len())?,
        crc: crc.value(),
    };
    end.messages.write(0, &offer.to_bytes())?;

    let place = Offer::LEN..Offer::LEN + Answer::LEN;
    let answer = end.qp.receive(&[end.messages.slice(place.clone())?]);
    end.qp.connect(address, ConnectOptions::default()).await?;
    end.qp.send(&[end.messages.slice(0..Offer::LEN)?]).await?;
    answer.await?;
    let answer = Answer::from_bytes(end.messages.to_vec(place)?.as_slice().try_into()?);
    if (answer.length, answer.crc) != (offer.file.len, offer.crc) {
        return Err("the receiver has other bytes than were sent".into());
    }
    println!("sent {} bytes, CRC-32 {:08x}", answer.length, answer.crc);
    end.qp.disconnect().await?;
    Ok(())
}

/// What both sides have.
struct End {
    pd: ProtectionDomain,
    qp: QueuePair,
    /// Memory of the offer and the answer.
    messages: MemoryRegion,
}

impl End {
    fn new(context: &Context) -> Result<Self, Failure> {
        let pd = context.alloc_pd()?;
        let messages = pd.register(Offer::LEN + Answer::LEN, Access::LOCAL_WRITE)?;
        let cq = context.create_cq(256)?;
        let qp = pd.create_qp(&cq, &cq, QpConfig::default())?;
        Ok(Self { pd, qp, messages })
    }
}

/// What the sender Sends: its file.
struct Offer {
    file: RemoteMemory,
    crc: u32,
}

impl Offer {
    const LEN: usize = 24;

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::LEN);
        bytes.extend(self.file.addr.to_be_bytes());
        bytes.extend(self.file.len.to_be_bytes());
        bytes.extend(self.file.stag.to_be_bytes());
        bytes.extend(self.crc.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let number = u64::from_be_bytes;
        let [a0, a1, a2, a3, a4, a5, a6, a7, rest @ ..] = bytes;
        let [l0, l1, l2, l3, l4, l5, l6, l7, s0, s1, s2, s3, crc @ ..] = rest;
        let file = RemoteMemory {
            addr: number([a0, a1, a2, a3, a4, a5, a6, a7]),
            len: number([l0, l1, l2, l3, l4, l5, l6, l7]),
            stag: u32::from_be_bytes([s0, s1, s2, s3]),
        };
        let crc = u32::from_be_bytes(crc);
        Self { file, crc }
    }
}

/// What the receiver Sends back: what it has.
struct Answer {
    length: u64,
    crc: u32,
}

impl Answer {
    const LEN: usize = 16;

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::LEN);
        bytes.extend(self.length.to_be_bytes());
        bytes.extend(self.crc.to_be_bytes());
        bytes.extend([0; 4]);
        bytes
    }

    fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let [length @ .., c0, c1, c2, c3, _, _, _, _] = bytes;
        Self {
            length: u64::from_be_bytes(length),
            crc: u32::from_be_bytes([c0, c1, c2, c3]),
        }
    }
}

/// The CRC-32 of zlib.
struct Crc(u32);

impl Default for Crc {
    fn default() -> Self {
        Self(!0)
    }
}

impl Crc {
    /// What each byte contributes.
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let (mut crc, mut bit) = (byte as u32, 0);
            while bit < 8 {
                crc = crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
                bit += 1;
            }
            table[byte] = crc;
            byte += 1;
        }
        table
    };

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let index = (self.0 as u8 ^ byte) as usize;
            self.0 = self.0 >> 8 ^ Self::TABLE[index];
        }
    }

    fn value(&self) -> u32 {
        !self.0
    }
}

/// A progress bar on standard error.
struct Bar {
    total: u64,
    done: u64,
    shown: Option<u64>,
    begin: Instant,
}

impl Bar {
    fn new(total: u64) -> Self {
        let mut bar = Self {
            total,
            done: 0,
            shown: None,
            begin: Instant::now(),
        };
        bar.add(0);
        bar
    }

    fn add(&mut self, bytes: u64) {
        self.done += bytes;
        let percent = match self.total {
            0 => 100,
            total => self.done * 100 / total,
        };
        if self.shown.replace(percent) == Some(percent) {
            return;
        }
        let cells = percent * BAR / 100;
        let bar: String = (0..BAR)
            .map(|n| if n < cells { '#' } else { '.' })
            .collect();
        let rate = self.done as f64 / self.begin.elapsed().as_secs_f64().max(1e-9);
        eprint!(
            "\r[{bar}] {percent:3} %  {:8.1} MiB/s",
            rate / f64::from(1 << 20)
        );
    }

    fn finish(&self) {
        eprintln!();
    }
}
