//! A ping-pong of RDMA Writes between two ends in one thread, over the loopback of an RNIC in this
//! process. That is what the engine takes for a round trip without another core, process or link.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rnic::embedded::{Device, DeviceConfig, Runtime};
use rnic::{
    AcceptOptions, Access, ConnectOptions, Context, ListenOptions, MemoryRegion, RemoteMemory,
};

use super::latency::{WARM_UP, await_mark, write_mark};
use super::plan::{Figure, Operation, Plan};
use crate::endpoint::{Endpoint, ToolError};
use crate::report::{Latency, Samples};

/// Work requests that an end has room for: one is outstanding, and those whose completion was not
/// looked for.
const DEPTH: u32 = 16;

/// Writes `bytes` bytes to and fro for so long; the time of both ways.
pub fn ping(bytes: u32, duration: Duration, patience: Duration) -> Result<Latency, ToolError> {
    let mut config = DeviceConfig::loopback();
    config.runtime = Runtime::Caller;
    let context = Context::embedded(&Device::open(config)?)?;
    // Source, sink and one more of each message.
    let span = u64::from(bytes) * 3;
    let plan = Plan::new(Operation::Write, Figure::Latency, bytes, 1, span);
    let mut near = Side::new(&context, &plan, patience)?;
    let mut far = Side::new(&context, &plan, patience)?;
    connect(&context, &near.end, &far.end, patience)?;
    let [to_near, to_far] = [near.memory()?, far.memory()?];

    let mut samples = Samples::default();
    let mut counted = Instant::now();
    for round in 0.. {
        if round == WARM_UP {
            counted = Instant::now();
        }
        if round > WARM_UP && counted.elapsed() >= duration {
            break;
        }
        let started = Instant::now();
        near.send(to_far, &plan, round)?;
        far.receive(&plan, round)?;
        far.send(to_near, &plan, round)?;
        near.receive(&plan, round)?;
        if round >= WARM_UP {
            samples.record(started.elapsed());
        }
    }
    near.end.disconnect()?;
    samples.latency().ok_or_else(|| {
        ToolError::Usage("no time for a single message: give a longer --duration".into())
    })
}

/// Connects by 127.0.0.1. The listener has a thread until they are connected.
fn connect(
    context: &Context,
    near: &Endpoint,
    far: &Endpoint,
    patience: Duration,
) -> Result<(), ToolError> {
    let listener = context.listen(
        SocketAddr::from(([127, 0, 0, 1], 0)),
        ListenOptions::default().backlog(1),
    )?;
    let options = ConnectOptions::default();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let request = listener.accept().wait(patience)?;
            request
                .accept(&far.qp, AcceptOptions::default())
                .wait(patience)
        });
        let connected = near
            .qp
            .connect(listener.local_addr(), options)
            .wait(patience);
        let accepted = accepted
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        connected?;
        accepted?;
        Ok(())
    })
}

/// One end and its memory.
struct Side {
    end: Endpoint,
    region: MemoryRegion,
}

impl Side {
    fn new(context: &Context, plan: &Plan, patience: Duration) -> Result<Self, ToolError> {
        let pd = context.alloc_pd()?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = pd.register(plan.span as usize, access)?;
        let end = Endpoint::new(context, &pd, DEPTH, 1, patience)?;
        Ok(Self { end, region })
    }

    fn memory(&self) -> Result<RemoteMemory, ToolError> {
        Ok(self.region.remote(0..self.region.len())?)
    }

    fn send(&self, to: RemoteMemory, plan: &Plan, round: u64) -> Result<(), ToolError> {
        write_mark(&self.end, &self.region, to, plan, round)
    }

    fn receive(&mut self, plan: &Plan, round: u64) -> Result<(), ToolError> {
        await_mark(&mut self.end, &self.region, plan, round, &mut |_, _| {
            Ok(false)
        })?;
        Ok(())
    }
}
