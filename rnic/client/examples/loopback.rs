//! Two ends in one program, connected over the loopback of an RNIC of its own: no daemon, no interface,
//! no privilege. Measures how long a message of 64 bytes goes to and fro, and how fast Writes of 1 MiB are.
//!
//! ```text
//! loopback [ROUNDS]
//! ```

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rnic::embedded::{Device, DeviceConfig, Runtime};
use rnic::{
    AcceptOptions, Access, CompletionQueue, ConnectOptions, Context, ListenOptions, MemoryRegion,
    QpConfig, QueuePair, WorkCompletion, WorkRequest,
};

/// Any error; `Send`, so that threads can hand it on.
type Failure = Box<dyn std::error::Error + Send + Sync>;

const MESSAGE: usize = 64;
const WRITE: usize = 1 << 20;
const DEPTH: usize = 4;
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Failure> {
    let rounds = std::env::args().nth(1);
    let rounds: usize = rounds.map_or(Ok(100_000), |text| text.parse())?;
    let mut config = DeviceConfig::loopback();
    // Whoever polls runs the engine: no other thread is needed.
    config.runtime = Runtime::Caller;
    let context = Context::embedded(&Device::open(config)?)?;
    let ends = [End::new(&context)?, End::new(&context)?];
    connect(&context, &ends)?;
    println!(
        "{:?} a round (median of {rounds})",
        ping_pong(&ends, rounds)?
    );
    println!("{:.1} Gbit/s by Writes of 1 MiB", writes(&ends)?);
    Ok(ends[0].qp.disconnect().wait(PATIENCE)?)
}

fn connect(context: &Context, [near, far]: &[End; 2]) -> Result<(), Failure> {
    let listener = context.listen(
        SocketAddr::from(([127, 0, 0, 1], 0)),
        ListenOptions::default().backlog(1),
    )?;
    let at = listener.local_addr();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| -> Result<(), rnic::Error> {
            let request = listener.accept().wait(PATIENCE)?;
            request
                .accept(&far.qp, AcceptOptions::default())
                .wait(PATIENCE)
                .map(|_| ())
        });
        near.qp
            .connect(at, ConnectOptions::default())
            .wait(PATIENCE)?;
        accepted.join().expect("it does not panic")?;
        Ok(())
    })
}

/// The median round trip of a message.
fn ping_pong(ends: &[End; 2], rounds: usize) -> Result<Duration, Failure> {
    let mut took = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let started = Instant::now();
        for (from, to) in [(0, 1), (1, 0)] {
            let (from, to) = (&ends[from], &ends[to]);
            to.qp
                .post_recv(WorkRequest::recv(0, &[to.region.slice(0..MESSAGE)?]))?;
            let message = [from.region.slice(MESSAGE..2 * MESSAGE)?];
            from.qp
                .post_send(WorkRequest::send(1, &message).unsignaled())?;
            to.next()?;
        }
        took.push(started.elapsed());
    }
    took.sort_unstable();
    Ok(took[rounds / 2])
}

/// Gigabits a second.
fn writes([near, far]: &[End; 2]) -> Result<f64, Failure> {
    let (from, to) = (near.region.slice(0..WRITE)?, far.region.remote(0..WRITE)?);
    let post = || near.qp.post_send(WorkRequest::write(2, &[from], to));
    let started = Instant::now();
    for _ in 0..DEPTH {
        post()?;
    }
    let mut done = 0;
    while started.elapsed() < Duration::from_secs(1) {
        near.next()?;
        done += 1;
        post()?;
    }
    Ok((done * WRITE * 8) as f64 / started.elapsed().as_nanos() as f64)
}

struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    region: MemoryRegion,
}

impl End {
    fn new(context: &Context) -> Result<Self, rnic::Error> {
        let pd = context.alloc_pd()?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = pd.register(WRITE, access)?;
        let cq = context.create_cq(64)?;
        let qp = pd.create_qp(&cq, &cq, QpConfig::default())?;
        Ok(Self { qp, cq, region })
    }

    /// Looks until something is done.
    fn next(&self) -> Result<(), Failure> {
        let mut done = [WorkCompletion::default()];
        while self.cq.poll(&mut done)? == 0 {}
        done[0].ok()?;
        Ok(())
    }
}
