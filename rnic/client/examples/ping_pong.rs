//! Two programs send one message to and fro, a thousand times.
//!
//! ```text
//! ping_pong server                                         # on 198.18.0.1, by the daemon there
//! ping_pong client 198.18.0.1                              # on another host
//! ping_pong /run/rnicd-b.sock client 198.18.0.1:7000       # by a certain daemon, to a certain port
//! ```

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rnic::{
    AcceptOptions, Access, CompletionQueue, ConnectOptions, Context, ListenOptions, MemoryRegion,
    QpConfig, QueuePair, WorkCompletion, WorkRequest, WrOpcode,
};

mod common {
    pub mod open;
}
use common::open::{Failure, arguments, local, open, server};

const ROUNDS: u64 = 1000;
const BYTES: usize = 64;
const USAGE: &str = "usage: ping_pong [<daemon socket>|embedded:<interface>] server [<address:port>]\n\
    or: ping_pong [<...>] client <host:port>";
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Failure> {
    let (place, arguments) = arguments(&["server", "client"]);
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (role, address) = match words.as_slice() {
        ["server"] => ("server", local("")?),
        ["server", address] => ("server", local(address)?),
        ["client", address] => ("client", server(address)?),
        _ => return Err(USAGE.into()),
    };
    let context = open(place.as_deref())?;
    let end = End::new(&context)?;
    match role {
        "server" => serve(&context, &end, address),
        _ => ping(&end, address),
    }
}

fn serve(context: &Context, end: &End, address: SocketAddr) -> Result<(), Failure> {
    let listener = context.listen(address, ListenOptions::default().backlog(1))?;
    println!("listening on {}", listener.local_addr());
    let request = listener.accept().wait(Duration::MAX)?;
    // The first receive must be there before the peer's first Send.
    end.post_recv()?;
    request
        .accept(&end.qp, AcceptOptions::default())
        .wait(PATIENCE)?;
    for round in 0..ROUNDS {
        end.wait_for(WrOpcode::Recv)?;
        if round + 1 < ROUNDS {
            end.post_recv()?;
        }
        end.region.write(BYTES, &end.region.to_vec(0..BYTES)?)?;
        end.send()?;
    }
    end.qp.disconnected().wait(PATIENCE)?;
    Ok(())
}

fn ping(end: &End, address: SocketAddr) -> Result<(), Failure> {
    end.qp
        .connect(address, ConnectOptions::default())
        .wait(PATIENCE)?;
    let started = Instant::now();
    for round in 0..ROUNDS {
        end.region.fill(BYTES..2 * BYTES, round as u8)?;
        end.post_recv()?;
        end.send()?;
        end.wait_for(WrOpcode::Recv)?;
        if end.region.to_vec(0..BYTES)? != [round as u8; BYTES] {
            return Err(format!("round {round} brought other bytes back").into());
        }
    }
    println!("{:?} a round", started.elapsed() / ROUNDS as u32);
    end.qp.disconnect().wait(PATIENCE)?;
    Ok(())
}

/// What both sides have: the first half of the region receives, the second half is sent.
struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    region: MemoryRegion,
}

impl End {
    fn new(context: &Context) -> Result<Self, rnic::Error> {
        let pd = context.alloc_pd()?;
        let region = pd.register(2 * BYTES, Access::LOCAL_WRITE)?;
        let cq = context.create_cq(16)?;
        let config = QpConfig::default().sq_depth(8).rq_depth(8);
        let qp = pd.create_qp(&cq, &cq, config)?;
        Ok(Self { qp, cq, region })
    }

    fn post_recv(&self) -> Result<(), rnic::Error> {
        self.qp
            .post_recv(WorkRequest::recv(0, &[self.region.slice(0..BYTES)?]))
    }

    fn send(&self) -> Result<(), rnic::Error> {
        self.qp.post_send(WorkRequest::send(
            0,
            &[self.region.slice(BYTES..2 * BYTES)?],
        ))
    }

    /// Waits for a completion with this opcode, past others.
    fn wait_for(&self, opcode: WrOpcode) -> Result<(), Failure> {
        let mut done = [WorkCompletion::default(); 1];
        loop {
            if self.cq.poll(&mut done)? == 0 {
                self.cq.readable().wait(PATIENCE)?;
                continue;
            }
            if done[0].ok()?.opcode == opcode {
                return Ok(());
            }
        }
    }
}
