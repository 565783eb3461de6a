//! The protocol of rping. The client advertises a buffer by a Send; the server Reads it and says so. The client
//! advertises a second buffer; the server Writes the data there and says so. The client compares. Each Send is 16 bytes in network order: address, STag, length.

use std::time::{Duration, Instant};

use rnic::{Access, Context, MemoryRegion, ProtectionDomain, RemoteMemory, WorkRequest, WrOpcode};

use crate::endpoint::{Endpoint, ToolError};
use crate::report::Samples;

/// The longest buffer, as in rping.
pub const SIZE_MAX: u32 = 64 * 1024;
/// The shortest: rping's text needs it.
pub const SIZE_MIN: u32 = 4;

const INFO: usize = 16;
const DEPTH: u32 = 4;

/// Either side's memory and connection.
#[derive(Debug)]
struct Side {
    end: Endpoint,
    /// The Send that goes out, and after it the one that comes in.
    info: MemoryRegion,
    data: MemoryRegion,
}

impl Side {
    fn new(
        end: Endpoint,
        pd: &ProtectionDomain,
        size: u32,
        data: Access,
    ) -> Result<Self, ToolError> {
        let local = Access::LOCAL_WRITE;
        let info = pd.register(2 * INFO, local)?;
        let data = pd.register(size as usize, data)?;
        let side = Self { end, info, data };
        side.expect()?;
        Ok(side)
    }

    /// Posts the receive for the peer's next Send.
    fn expect(&self) -> Result<(), ToolError> {
        let sge = self.info.slice(INFO..2 * INFO)?;
        Ok(self.end.qp.post_recv(WorkRequest::recv(0, &[sge]))?)
    }

    fn tell(&mut self, memory: RemoteMemory) -> Result<(), ToolError> {
        self.info.write(0, &encode(memory))?;
        let sge = self.info.slice(0..INFO)?;
        self.end.qp.post_send(WorkRequest::send(1, &[sge]))?;
        Ok(())
    }

    /// Waits for the peer's Send, over completions of our own Sends.
    fn hear(&mut self) -> Result<RemoteMemory, ToolError> {
        let done = self.until(WrOpcode::Recv)?;
        if done as usize != INFO {
            return Err(ToolError::Peer(format!(
                "the peer sent {done} bytes where rping's protocol has {INFO}: is it rping or \
                 rnic-ping?"
            )));
        }
        let mut info = [0; INFO];
        self.info.read(INFO, &mut info)?;
        self.expect()?;
        Ok(decode(info))
    }

    fn until(&mut self, opcode: WrOpcode) -> Result<u32, ToolError> {
        loop {
            let done = self.end.completion()?;
            if done.opcode == opcode {
                return Ok(done.byte_len);
            }
        }
    }
}

fn encode(memory: RemoteMemory) -> [u8; INFO] {
    let mut info = [0; INFO];
    info[..8].copy_from_slice(&memory.addr.to_be_bytes());
    info[8..12].copy_from_slice(&memory.stag.to_be_bytes());
    info[12..].copy_from_slice(&u32::try_from(memory.len).unwrap_or(u32::MAX).to_be_bytes());
    info
}

fn decode(info: [u8; INFO]) -> RemoteMemory {
    let [
        a0,
        a1,
        a2,
        a3,
        a4,
        a5,
        a6,
        a7,
        s0,
        s1,
        s2,
        s3,
        l0,
        l1,
        l2,
        l3,
    ] = info;
    RemoteMemory {
        addr: u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
        stag: u32::from_be_bytes([s0, s1, s2, s3]),
        len: u64::from(u32::from_be_bytes([l0, l1, l2, l3])),
    }
}

/// The passive side of one connection; its receive is posted before the connection is accepted.
#[derive(Debug)]
pub struct Server(Side);

impl Server {
    /// Ready to be connected.
    pub fn new(context: &Context, patience: Duration) -> Result<Self, ToolError> {
        let pd = context.alloc_pd()?;
        let end = Endpoint::new(context, &pd, DEPTH, DEPTH, patience)?;
        // The sink of an RDMA Read: some stacks want remote write of it, ours does not.
        let access = Access::LOCAL_WRITE;
        Ok(Self(Side::new(end, &pd, SIZE_MAX, access)?))
    }

    /// The queue pair to accept with.
    pub fn queue_pair(&self) -> &rnic::QueuePair {
        &self.0.end.qp
    }

    /// Serves until the client goes; the number of rounds.
    pub fn serve(&mut self) -> Result<u64, ToolError> {
        let side = &mut self.0;
        let mut rounds = 0;
        loop {
            let source = match side.hear() {
                Ok(source) => source,
                // The client's FIN between rounds is how a run ends, and nothing else is.
                Err(ToolError::Work {
                    status: rnic::WcStatus::WorkRequestFlushed,
                    ..
                }) => {
                    side.end.wait_closed()?;
                    return Ok(rounds);
                }
                Err(error) => return Err(error),
            };
            if source.len > u64::from(SIZE_MAX) {
                return Err(ToolError::Peer(format!(
                    "the client advertised {} bytes; at most {SIZE_MAX} are served",
                    source.len
                )));
            }
            let len = source.len as usize;
            let sge = side.data.slice(0..len)?;
            side.end
                .qp
                .post_send(WorkRequest::read(2, &[sge], source))?;
            side.until(WrOpcode::Read)?;
            side.tell(RemoteMemory {
                stag: 0,
                addr: 0,
                len: 0,
            })?;
            let sink = side.hear()?;
            side.end.qp.post_send(WorkRequest::write(3, &[sge], sink))?;
            side.tell(RemoteMemory {
                stag: 0,
                addr: 0,
                len: 0,
            })?;
            rounds += 1;
        }
    }
}

/// The active side.
#[derive(Debug)]
pub struct Client {
    side: Side,
    source: MemoryRegion,
}

impl Client {
    /// Ready to connect.
    pub fn new(context: &Context, size: u32, patience: Duration) -> Result<Self, ToolError> {
        let pd = context.alloc_pd()?;
        let end = Endpoint::new(context, &pd, DEPTH, DEPTH, patience)?;
        let sink = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let side = Side::new(end, &pd, size, sink)?;
        let source = Access::REMOTE_READ;
        Ok(Self {
            side,
            source: pd.register(size as usize, source)?,
        })
    }

    /// The queue pair to connect with.
    pub fn queue_pair(&self) -> &rnic::QueuePair {
        &self.side.end.qp
    }

    /// One round: text out, text back, compared. Its time goes into `samples`.
    pub fn round(&mut self, number: u64, samples: &mut Samples) -> Result<(), ToolError> {
        let size = self.source.len();
        let text = text(number, size);
        self.source.write(0, &text)?;
        self.side.data.fill(0..size, 0)?;
        let started = Instant::now();
        let source = self.source.remote(0..size)?;
        self.side.tell(source)?;
        self.side.hear()?;
        let sink = self.side.data.remote(0..size)?;
        self.side.tell(sink)?;
        self.side.hear()?;
        samples.record(started.elapsed());
        let mut back = vec![0; size];
        self.side.data.read(0, &mut back)?;
        match text.iter().zip(&back).position(|(sent, got)| sent != got) {
            Some(position) => Err(ToolError::Corrupt {
                position: position as u64,
            }),
            None => Ok(()),
        }
    }

    /// Ends the connection.
    pub fn finish(&self) -> Result<(), ToolError> {
        self.side.end.disconnect()
    }
}

/// rping's text: `rdma-ping-N: ` and letters from a start that moves with N; ends with a NUL.
fn text(number: u64, size: usize) -> Vec<u8> {
    let mut text = format!("rdma-ping-{number}: ").into_bytes();
    text.truncate(size.saturating_sub(1));
    let letters = (b'A'..=b'z').cycle().skip((number % 58) as usize);
    let missing = size.saturating_sub(1) - text.len();
    text.extend(letters.take(missing));
    text.resize(size, 0);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advertisement_is_address_stag_length_in_network_order() {
        let memory = RemoteMemory {
            addr: 0x0102_0304_0506_0708,
            stag: 0x0a0b_0c0d,
            len: 64,
        };
        let info = encode(memory);
        assert_eq!(info, [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 0, 0, 0, 64]);
        assert_eq!(decode(info), memory);
    }

    #[test]
    fn each_round_has_its_own_text_of_the_wanted_size() {
        for size in [4, 13, 64, 65_536] {
            let text = text(3, size);
            assert_eq!(text.len(), size);
            assert_eq!(text.last(), Some(&0));
        }
        assert!(text(7, 64).starts_with(b"rdma-ping-7: "));
        assert_ne!(text(1, 64)[13..], text(2, 64)[13..]);
    }
}
