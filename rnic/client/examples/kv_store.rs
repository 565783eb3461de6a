//! A key-value store: clients get values by RDMA Read, past the server's processor.
//!
//! ```text
//! kv_store server                                          # on 198.18.0.1, by the daemon there
//! kv_store client 198.18.0.1 put colour blue get colour    # on another host
//! ```
//!
//! The server's table is registered memory with the right to be Read and no other. A client that
//! puts Sends key and value, and the server, the only one who writes the table, answers. A client
//! that gets Reads the slots where the key may lie. The RNIC knows of no slots, so a Read may bring
//! parts of two versions: a slot carries a hash of its bytes, and a client that finds a wrong one
//! Reads again.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use rnic::{
    AcceptOptions, Access, CompletionQueue, ConnectOptions, Context, ListenOptions, MemoryRegion,
    ProtectionDomain, QpConfig, QueuePair, RemoteMemory, WorkCompletion, WorkRequest,
};

mod common {
    pub mod fnv;
    pub mod open;
}
use common::fnv::Fnv;
use common::open::{Failure, arguments, local, open, server};

/// Slots of the table.
const SLOTS: usize = 4096;
/// Slots, from the one of its hash on, in which a key may lie.
const REACH: usize = 8;
/// Bytes of a slot: hash, length of the key, length of the value, key, value.
const SLOT: usize = 256;
const HEAD: usize = 12;
/// Bytes of the longest key and value together.
const ENTRY_MAX: usize = SLOT - HEAD;
/// The table goes on behind its last slot for keys whose hash is near the end.
const TABLE: usize = (SLOTS + REACH) * SLOT;
const PATIENCE: Duration = Duration::from_secs(10);

const USAGE: &str = "usage: kv_store [<daemon socket>|embedded:<interface>] server [<address:port>]\n\
    or: kv_store [<...>] client <host:port> [put <key> <value> | get <key>]...";

fn main() -> Result<(), Failure> {
    let (place, arguments) = arguments(&["server", "client"]);
    let place = place.as_deref();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["server"] => serve(&open(place)?, local("")?),
        ["server", address] => serve(&open(place)?, local(address)?),
        ["client", address, commands @ ..] => {
            let client = Client::connect(&open(place)?, server(address)?)?;
            client.carry_out(commands)?;
            Ok(client.end.qp.disconnect().wait(PATIENCE)?)
        }
        _ => Err(USAGE.into()),
    }
}

fn serve(context: &Context, address: SocketAddr) -> Result<(), Failure> {
    let pd = context.alloc_pd()?;
    let to_read = Access::REMOTE_READ;
    let table = Mutex::new(Table {
        memory: pd.register(TABLE, to_read)?,
    });
    let listener = context.listen(address, ListenOptions::default().backlog(16))?;
    println!("listening on {}", listener.local_addr());
    std::thread::scope(|scope| {
        loop {
            let request = listener.accept().wait(Duration::MAX)?;
            let remote = request.remote();
            let end = End::new(context, &pd)?;
            end.post_receive()?;
            let advertisement = table
                .lock()
                .map_err(|_| "a thread died")?
                .memory
                .remote(0..TABLE)?;
            let accepted = request
                .accept(
                    &end.qp,
                    AcceptOptions::default().private_data(advertisement.to_bytes()),
                )
                .wait(PATIENCE);
            if let Err(error) = accepted {
                eprintln!("{remote}: {error}");
                continue;
            }
            let table = &table;
            scope.spawn(move || {
                if let Err(error) = end.answer_puts(table) {
                    eprintln!("{remote}: {error}");
                }
            });
        }
    })
}

/// The server's memory; whoever puts has the lock.
struct Table {
    memory: MemoryRegion,
}

impl Table {
    /// Puts an entry in the place of the key's last one, or in a free one.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<bool, Failure> {
        let first = slot_of(key);
        let mut free = None;
        let mut place = None;
        for number in first..first + REACH {
            match Slot::decode(&self.memory.to_vec(range(number, 1))?) {
                Slot::Entry { key: found, .. } if found == key => place = Some(number),
                Slot::Entry { .. } => {}
                Slot::Free | Slot::Torn => free = free.or(Some(number)),
            }
        }
        let Some(number) = place.or(free) else {
            return Ok(false);
        };
        self.memory
            .write(number * SLOT, &Slot::encode(key, value))?;
        Ok(true)
    }
}

/// A slot, as it was Read.
enum Slot {
    Free,
    Entry {
        key: Vec<u8>,
        value: Vec<u8>,
    },
    /// It was being written.
    Torn,
}

impl Slot {
    fn encode(key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 8];
        bytes.extend((key.len() as u16).to_be_bytes());
        bytes.extend((value.len() as u16).to_be_bytes());
        bytes.extend(key);
        bytes.extend(value);
        let mut hash = Fnv::default();
        hash.add(&bytes[8..]);
        bytes[..8].copy_from_slice(&hash.0.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Self {
        if bytes[..HEAD].iter().all(|byte| *byte == 0) {
            return Self::Free;
        }
        let length = |at| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        let (key_end, end) = (HEAD + length(8), HEAD + length(8) + length(10));
        let mut hash = Fnv::default();
        match bytes.get(8..end) {
            Some(hashed) => hash.add(hashed),
            None => return Self::Torn,
        }
        if bytes[..8] != hash.0.to_be_bytes() {
            return Self::Torn;
        }
        Self::Entry {
            key: bytes[HEAD..key_end].into(),
            value: bytes[key_end..end].into(),
        }
    }
}

/// The first slot in which a key may lie.
fn slot_of(key: &[u8]) -> usize {
    let mut hash = Fnv::default();
    hash.add(key);
    hash.0 as usize % SLOTS
}

/// Where so many slots lie.
fn range(first: usize, count: usize) -> std::ops::Range<usize> {
    first * SLOT..(first + count) * SLOT
}

struct Client {
    end: End,
    table: RemoteMemory,
}

impl Client {
    fn connect(context: &Context, server: SocketAddr) -> Result<Self, Failure> {
        let end = End::new(context, &context.alloc_pd()?)?;
        let connected = end
            .qp
            .connect(server, ConnectOptions::default())
            .wait(PATIENCE)?;
        let table = RemoteMemory::try_from(connected.private_data.as_slice())?;
        if table.len < TABLE as u64 {
            return Err("the server's table is smaller than ours would be".into());
        }
        Ok(Self { end, table })
    }

    fn carry_out(&self, mut commands: &[&str]) -> Result<(), Failure> {
        loop {
            commands = match commands {
                [] => return Ok(()),
                ["put", key, value, rest @ ..] => {
                    self.put(key.as_bytes(), value.as_bytes())?;
                    rest
                }
                ["get", key, rest @ ..] => {
                    match self.get(key.as_bytes())? {
                        Some(value) => println!("{key}: {}", String::from_utf8_lossy(&value)),
                        None => println!("{key} is not there"),
                    }
                    rest
                }
                _ => return Err(USAGE.into()),
            };
        }
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        if key.is_empty() || key.len() + value.len() > ENTRY_MAX {
            return Err(format!("key and value have 1 to {ENTRY_MAX} bytes").into());
        }
        self.end.post_receive()?;
        self.end.send(&Slot::encode(key, value))?;
        match self.end.receive()?.as_slice() {
            b"put" => Ok(()),
            other => Err(String::from_utf8_lossy(other).into()),
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let first = slot_of(key);
        let into = [self.end.region.slice(0..REACH * SLOT)?];
        loop {
            let from = self.table.offset((first * SLOT) as u64);
            self.end.qp.read(&into, from).wait(PATIENCE)?;
            let bytes = self.end.region.to_vec(0..REACH * SLOT)?;
            let mut torn = false;
            for slot in bytes.chunks(SLOT) {
                match Slot::decode(slot) {
                    Slot::Entry { key: found, value } if found == key => return Ok(Some(value)),
                    Slot::Entry { .. } | Slot::Free => {}
                    Slot::Torn => torn = true,
                }
            }
            if !torn {
                return Ok(None);
            }
        }
    }
}

/// What both sides of a connection have. The region's first half receives and Reads, what is in the
/// second is sent.
struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    region: MemoryRegion,
}

impl End {
    const HALF: usize = REACH * SLOT;

    fn new(context: &Context, pd: &ProtectionDomain) -> Result<Self, Failure> {
        let region = pd.register(2 * Self::HALF, Access::LOCAL_WRITE)?;
        let cq = context.create_cq(64)?;
        let qp = pd.create_qp(&cq, &cq, QpConfig::default())?;
        Ok(Self { qp, cq, region })
    }

    /// The server's side of a connection, until its client disconnects.
    fn answer_puts(&self, table: &Mutex<Table>) -> Result<(), Failure> {
        loop {
            let entry = match self.receive() {
                Ok(entry) => entry,
                // The connection's end flushes the receive.
                Err(_) => return Ok(self.qp.disconnected().wait(PATIENCE)?),
            };
            self.post_receive()?;
            let Slot::Entry { key, value } = Slot::decode(&entry) else {
                self.send(b"this is no entry")?;
                continue;
            };
            let put = table
                .lock()
                .map_err(|_| "a thread died")?
                .put(&key, &value)?;
            self.send(if put { b"put" } else { b"no room for this key" })?;
        }
    }

    fn post_receive(&self) -> Result<(), Failure> {
        let element = self.region.slice(0..SLOT)?;
        Ok(self.qp.post_recv(WorkRequest::recv(0, &[element]))?)
    }

    fn receive(&self) -> Result<Vec<u8>, Failure> {
        let mut done = [WorkCompletion::default()];
        while self.cq.poll(&mut done)? == 0 {
            self.cq.readable().wait(Duration::MAX)?;
        }
        let received = done[0].ok()?.byte_len;
        Ok(self.region.to_vec(0..received as usize)?)
    }

    fn send(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.region.write(Self::HALF, bytes)?;
        let element = self.region.slice(Self::HALF..Self::HALF + bytes.len())?;
        // One message is under way at a time, so its completion need not be waited for.
        Ok(self
            .qp
            .post_send(WorkRequest::send(0, &[element]).unsignaled())?)
    }
}
