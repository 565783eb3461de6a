//! One end of a connection with what the tools need beside it, and waiting for completions.

use std::ops::Range;
use std::time::{Duration, Instant};

use rnic::{
    CompletionQueue, Context, ProtectionDomain, QpConfig, QueuePair, WcStatus, WorkCompletion,
};

/// How long a tool polls before it blocks, with an engine in this process: its core is ours, and a nap
/// of ours is one of its own. Beside a daemon, which may need the core, the library says how long.
const SPIN_INLINE: Duration = Duration::from_millis(5);

/// Completions taken at once.
const BATCH: usize = 32;

/// What ends a tool's run.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error(transparent)]
    Rnic(#[from] rnic::Error),
    /// The interface can't be opened as an RNIC.
    #[cfg(feature = "embedded")]
    #[error(transparent)]
    Device(#[from] rnic::embedded::DeviceError),
    /// The interface can't be taken by an XDP program.
    #[cfg(feature = "embedded")]
    #[error(transparent)]
    Steering(#[from] rnic_steering::SteeringError),
    /// The interface can't be opened for bare frames.
    #[cfg(feature = "embedded")]
    #[error(transparent)]
    Xsk(#[from] rnic_xsk::XskError),
    /// The kernel refused something.
    #[error("{what}: {source}")]
    Io {
        what: String,
        source: std::io::Error,
    },
    #[error(
        "work request {wr_id} failed: {status:?}; if this is WorkRequestFlushed the connection was \
         lost before it was done{}", detail.as_ref().map(|d| format!(" ({d})")).unwrap_or_default()
    )]
    Work {
        wr_id: u64,
        status: WcStatus,
        detail: Option<String>,
    },
    /// The bytes that arrived are not those that were sent.
    #[error("byte {position} of the transfer differs from what was sent")]
    Corrupt {
        /// The first that differs.
        position: u64,
    },
    /// The other end does not speak this tool's protocol, or broke it.
    #[error("{0}")]
    Peer(String),
    /// None of a host's addresses can be used.
    #[error("no address of the host can be used: {0}")]
    NoAddress(String),
    /// The command line asks for what can't be.
    #[error("{0}")]
    Usage(String),
}

/// A queue pair with one completion queue for both of its work queues.
#[derive(Debug)]
pub struct Endpoint {
    pub qp: QueuePair,
    cq: CompletionQueue,
    inline: bool,
    busy: bool,
    /// What was taken from the CQ, and not looked at: the part of it that `left` says.
    taken: [WorkCompletion; BATCH],
    left: Range<usize>,
    /// How long nothing may happen.
    patience: Duration,
}

#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// How long nothing may happen.
    pub patience: Duration,
    /// Never sleep: an engine in this process polls as long as we do.
    pub busy: bool,
}

impl Endpoint {
    /// A queue pair of so many work requests each way.
    pub fn new(
        context: &Context,
        pd: &ProtectionDomain,
        sq_depth: u32,
        rq_depth: u32,
        patience: Duration,
    ) -> Result<Self, ToolError> {
        let room = sq_depth + rq_depth;
        Self::with_room(context, pd, sq_depth, rq_depth, room, patience)
    }

    /// The same with room for `room` completions, those of [further queue pairs](Self::another)
    /// among them.
    pub fn with_room(
        context: &Context,
        pd: &ProtectionDomain,
        sq_depth: u32,
        rq_depth: u32,
        room: u32,
        patience: Duration,
    ) -> Result<Self, ToolError> {
        let cq = context.create_cq(room)?;
        let qp = pd.create_qp(&cq, &cq, config(sq_depth, rq_depth))?;
        let inline = context.is_inline();
        Ok(Self {
            qp,
            cq,
            inline,
            busy: false,
            taken: [WorkCompletion::default(); BATCH],
            left: 0..0,
            patience,
        })
    }

    /// The same, but when `busy` it never sleeps.
    #[must_use]
    pub fn busy(mut self, busy: bool) -> Self {
        self.busy = busy;
        self
    }

    /// A further queue pair, whose completions come here too.
    pub fn another(
        &self,
        pd: &ProtectionDomain,
        sq_depth: u32,
        rq_depth: u32,
    ) -> Result<QueuePair, ToolError> {
        let config = config(sq_depth, rq_depth);
        Ok(pd.create_qp(&self.cq, &self.cq, config)?)
    }

    /// The next completion if there is one; one in error is an error.
    pub fn poll(&mut self) -> Result<Option<WorkCompletion>, ToolError> {
        if self.left.is_empty() {
            self.left = 0..self.cq.poll(&mut self.taken)?;
        }
        match self.left.next().map(|place| self.taken[place]) {
            Some(done) if done.status != WcStatus::Success => Err(ToolError::Work {
                wr_id: done.wr_id,
                status: done.status,
                detail: self.ending(),
            }),
            done => Ok(done),
        }
    }

    /// Whether the engine runs only when this process polls.
    pub fn is_inline(&self) -> bool {
        self.inline
    }

    /// The next completion; waits for it.
    pub fn completion(&mut self) -> Result<WorkCompletion, ToolError> {
        let started = Instant::now();
        let spin = match (self.busy, self.inline) {
            (true, _) => self.patience,
            (false, true) => SPIN_INLINE,
            (false, false) => Duration::ZERO,
        };
        loop {
            if let Some(done) = self.poll()? {
                return Ok(done);
            }
            if started.elapsed() >= spin {
                self.cq.readable().wait(self.patience)?;
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// How the connection ended, if it did; waits a moment for the event.
    fn ending(&self) -> Option<String> {
        match self.qp.disconnected().wait(Duration::from_millis(500)) {
            Err(rnic::Error::Timeout { .. }) => None,
            Err(ended) => Some(ended.to_string()),
            Ok(()) => Some("the peer closed it in order".into()),
        }
    }

    /// Waits for the peer to end the connection; anything but its doing so in order is an error.
    pub fn wait_closed(&self) -> Result<(), ToolError> {
        Ok(self.qp.disconnected().wait(self.patience)?)
    }

    /// Ends the connection in order and waits until it is gone.
    pub fn disconnect(&self) -> Result<(), ToolError> {
        Ok(self.qp.disconnect().wait(self.patience)?)
    }
}

fn config(sq_depth: u32, rq_depth: u32) -> QpConfig {
    QpConfig::default()
        .sq_depth(sq_depth)
        .rq_depth(rq_depth)
        .max_sge(1)
        .max_inline(0)
}
