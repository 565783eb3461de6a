//! Copies a file to another host by RDMA Writes, with a progress bar: the async API.
//!
//! ```text
//! file_copy receive :7000 COPY                # on 198.18.0.2, by the daemon there
//! file_copy send 198.18.0.2:7000 FILE         # on another host
//! ```
//!
//! The receiver advertises a few chunks of memory. The sender Writes one after the other with Immediate Data,
//! which says how long the chunk is. It may use a chunk again when the receiver has said, by Immediate Data too,
//! that it is in the file. A chunk of no bytes ends the file; the
//! receiver answers it with the hash of what it wrote.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Instant;

use rnic::{
    AcceptOptions, Access, CompletionQueue, ConnectOptions, Context, Listener, MemoryRegion,
    ProtectionDomain, QpConfig, QueuePair, RemoteMemory, WorkRequest, WrOpcode, block_on,
};

mod common {
    pub mod fnv;
    pub mod open;
}
use common::fnv::Fnv;
use common::open::{Failure, arguments, local, open, server};

/// Chunks that may be under way.
const CHUNKS: usize = 16;
/// Bytes of each.
const CHUNK: usize = 128 << 10;
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
            block_on(send(&context()?, address, File::open(file)?))
        }
        _ => Err(USAGE.into()),
    }
}

async fn receive(context: &Context, address: SocketAddr, mut file: File) -> Result<(), Failure> {
    let to_write = Access {
        remote_write: true,
        ..Access::LOCAL
    };
    let end = End::new(context, to_write)?;
    let listener = Listener::bind(context, address, 1)?;
    println!("listening on {}", listener.local_addr());
    let request = listener.next_request().await?;
    end.post_receives()?;
    let options = AcceptOptions {
        private_data: end.region.remote(0..CHUNKS * CHUNK)?.to_bytes().into(),
        ..AcceptOptions::default()
    };
    request.accept_async(&end.qp, options).await?;

    let (mut bytes, mut hash) = (0, Fnv::default());
    for number in 0.. {
        let length = end.word().await?;
        let length = usize::try_from(length).ok().filter(|len| *len <= CHUNK);
        let length = length.ok_or("the sender speaks of a chunk larger than all are")?;
        if length == 0 {
            break;
        }
        let chunk = end.region.to_vec(part(number, length))?;
        file.write_all(&chunk)?;
        hash.add(&chunk);
        bytes += length;
        end.post_receive()?;
        end.qp
            .post_send(WorkRequest::immediate(0, 0).unsignaled())?;
    }
    file.sync_all()?;
    end.qp.post_send(WorkRequest::immediate(0, hash.0))?;
    println!("received {bytes} bytes, hash {:016x}", hash.0);
    end.qp.disconnected().await?;
    Ok(())
}

async fn send(context: &Context, address: SocketAddr, mut file: File) -> Result<(), Failure> {
    let end = End::new(context, Access::LOCAL)?;
    end.post_receives()?;
    let connected = end
        .qp
        .connect_async(address, ConnectOptions::default())
        .await?;
    let remote = RemoteMemory::from_bytes(connected.private_data.as_slice().try_into()?);
    if remote.len < (CHUNKS * CHUNK) as u64 {
        return Err("the receiver has too little memory for us".into());
    }

    let mut bar = Bar::new(file.metadata()?.len());
    let (mut hash, mut free) = (Fnv::default(), CHUNKS);
    // Lengths of the chunks that the receiver has not answered yet.
    let mut under_way = VecDeque::new();
    let mut bytes = vec![0; CHUNK];
    for number in 0.. {
        let length = read_full(&mut file, &mut bytes)?;
        hash.add(&bytes[..length]);
        if length == 0 {
            end.qp
                .post_send(WorkRequest::immediate(0, 0).unsignaled())?;
            break;
        }
        while free == 0 {
            free += end.answer(&mut under_way, &mut bar).await?;
        }
        let range = part(number, length);
        end.region.write(range.start, &bytes[..length])?;
        let elements = [end.region.slice(range.clone())?];
        let to = remote.offset(range.start as u64);
        let work = WorkRequest::write_with_immediate(0, &elements, to, length as u64);
        end.qp.post_send(work.unsignaled())?;
        under_way.push_back(length as u64);
        free -= 1;
    }
    while !under_way.is_empty() {
        end.answer(&mut under_way, &mut bar).await?;
    }
    if end.word().await? != hash.0 {
        return Err("the receiver wrote other bytes than were sent".into());
    }
    bar.finish();
    println!("sent {} bytes, hash {:016x}", bar.done, hash.0);
    end.qp.disconnect_async().await?;
    Ok(())
}

/// The part of both regions in which so many bytes of a chunk lie.
fn part(number: usize, length: usize) -> Range<usize> {
    let start = number % CHUNKS * CHUNK;
    start..start + length
}

/// Fills `into` unless the file ends before; says how far it came.
fn read_full(file: &mut File, into: &mut [u8]) -> Result<usize, Failure> {
    let mut filled = 0;
    while filled < into.len() {
        match file.read(&mut into[filled..])? {
            0 => break,
            more => filled += more,
        }
    }
    Ok(filled)
}

/// What both sides have.
struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    region: MemoryRegion,
}

impl End {
    fn new(context: &Context, access: Access) -> Result<Self, Failure> {
        let pd = ProtectionDomain::alloc(context)?;
        let region = pd.register(CHUNKS * CHUNK, access)?;
        let cq = CompletionQueue::create(context, 256)?;
        let qp = QueuePair::create(&pd, &cq, &cq, QpConfig::default())?;
        Ok(Self { qp, cq, region })
    }

    /// One receive for each piece of Immediate Data that may come unasked. It has no memory.
    fn post_receives(&self) -> Result<(), Failure> {
        (0..=CHUNKS).try_for_each(|_| self.post_receive())
    }

    fn post_receive(&self) -> Result<(), Failure> {
        Ok(self.qp.post_recv(WorkRequest::recv(0, &[]))?)
    }

    /// The peer's next Immediate Data.
    async fn word(&self) -> Result<u64, Failure> {
        loop {
            let done = self.cq.next().await?.ok()?;
            if done.opcode == WrOpcode::Recv {
                return Ok(done.immediate.ok_or("the peer sent bytes instead")?);
            }
        }
    }

    /// Waits until the receiver has written the oldest chunk; gives how many are free again.
    async fn answer(&self, under_way: &mut VecDeque<u64>, bar: &mut Bar) -> Result<usize, Failure> {
        self.word().await?;
        self.post_receive()?;
        bar.add(under_way.pop_front().ok_or("an answer to no chunk")?);
        Ok(1)
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
            // A file that grows while it is sent has more bytes than it had.
            total => (self.done * 100 / total).min(100),
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
