//! Connections between test programs, through the crate `rnic` and two daemons.

use std::net::SocketAddr;
use std::time::Duration;

use rnic::{
    AcceptOptions, Access, CompletionQueue, ConnectOptions, Context, DisconnectReason, Error,
    ListenOptions, MemoryRegion, ProtectionDomain, QpConfig, QueuePair, RemoteMemory, Sge,
    WorkCompletion, WorkRequest,
};

use crate::daemon::Daemon;
use crate::pattern::Pattern;

/// How long any one step may take.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Everything that a peer and local work may do.
pub const FULL_ACCESS: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC);

/// One end of a connection, with a region of its own.
#[derive(Debug)]
pub struct Endpoint {
    pub qp: QueuePair,
    /// Where all its completions go.
    pub cq: CompletionQueue,
    /// Memory with [`FULL_ACCESS`].
    pub region: MemoryRegion,
    pub pd: ProtectionDomain,
    pub context: Context,
}

impl Endpoint {
    /// An endpoint that is not connected, of a new client, with so many bytes of memory.
    #[must_use]
    pub fn new(daemon: &Daemon, bytes: usize) -> Self {
        let context = daemon.open();
        Self::of(context, bytes)
    }

    /// An endpoint that is not connected, with so many bytes of memory.
    #[must_use]
    pub fn of(context: Context, bytes: usize) -> Self {
        let pd = context.alloc_pd().expect("a protection domain");
        let cq = context.create_cq(256).expect("a completion queue");
        let qp = pd
            .create_qp(&cq, &cq, QpConfig::default())
            .expect("a queue pair");
        let region = pd.register(bytes, FULL_ACCESS).expect("a region");
        Self {
            qp,
            cq,
            region,
            pd,
            context,
        }
    }

    /// The region as a peer may use it.
    #[must_use]
    pub fn remote(&self) -> RemoteMemory {
        self.region
            .remote(0..self.region.len())
            .expect("all of the region is in it")
    }

    /// An element for work requests: a range of the region.
    #[must_use]
    pub fn element(&self, range: std::ops::Range<usize>) -> Sge {
        self.region.slice(range).expect("a range of the region")
    }

    /// Fills the region with the pattern of a seed.
    pub fn fill(&self, seed: u64) {
        let bytes = Pattern::bytes(seed, self.region.len());
        self.region
            .write(0, &bytes)
            .expect("as many bytes as the region has");
    }

    /// Whether the region holds the pattern of a seed.
    #[must_use]
    pub fn holds(&self, seed: u64) -> bool {
        self.content() == Pattern::bytes(seed, self.region.len())
    }

    /// All bytes of the region.
    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        self.region
            .to_vec(0..self.region.len())
            .expect("all of the region is in it")
    }

    /// The next completion.
    #[track_caller]
    #[must_use]
    pub fn completion(&self) -> WorkCompletion {
        let mut completion = [WorkCompletion::default()];
        loop {
            if self
                .cq
                .poll(&mut completion)
                .expect("a sound completion queue")
                == 1
            {
                return completion[0];
            }
            self.cq.readable().wait(LIMIT).expect("a completion");
        }
    }

    /// Posts to the send queue.
    #[track_caller]
    pub fn post(&self, work: WorkRequest<'_>) {
        self.qp.post_send(work).expect("room on the send queue");
    }

    /// Posts to the send queue, by one doorbell; how many there was room for.
    #[track_caller]
    pub fn post_all(&self, work: &[WorkRequest<'_>]) -> usize {
        self.qp.post_send_batch(work).expect("sound work requests")
    }

    /// Posts a receive of a range of the region.
    #[track_caller]
    pub fn post_recv(&self, wr_id: u64, range: std::ops::Range<usize>) {
        let element = self.element(range);
        self.qp
            .post_recv(WorkRequest::recv(wr_id, &[element]))
            .expect("room for a receive");
    }

    /// Waits for the connection's end and gives its reason.
    #[track_caller]
    #[must_use]
    pub fn ending(&self) -> DisconnectReason {
        match self.qp.disconnected().wait(LIMIT) {
            Ok(()) => DisconnectReason::Graceful,
            Err(Error::Disconnected { reason, message }) => {
                assert!(!message.is_empty(), "{reason:?} comes without a message");
                reason
            }
            Err(other) => panic!("the connection should have ended: {other}"),
        }
    }
}

/// Connects `a` to `b`, where `b` listens at an address.
#[track_caller]
pub fn connect(a: &Endpoint, b: &Endpoint, at: SocketAddr) {
    connect_with(
        a,
        b,
        at,
        ListenOptions::default(),
        ConnectOptions::default(),
    );
}

/// The same with options of both.
#[track_caller]
pub fn connect_with(
    a: &Endpoint,
    b: &Endpoint,
    at: SocketAddr,
    listen: ListenOptions,
    connect: ConnectOptions,
) {
    let listener = b.context.listen(at, listen).expect("a free address");
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let request = listener.accept().wait(LIMIT).expect("a connection request");
            request
                .accept(&b.qp, AcceptOptions::default())
                .wait(LIMIT)
                .expect("RDMA mode");
        });
        a.qp.connect(at, connect).wait(LIMIT).expect("RDMA mode");
        accepted
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
