//! The program that hostile peers connect to: it gives each a region, and keeps another.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rnic::{AcceptOptions, Access, Context, ListenOptions, Listener, QpConfig};
use rnic::{DisconnectReason, Error, WorkRequest};
use rnic_tests::daemon::Daemon;
use rnic_tests::pattern::Pattern;
use rnic_tests::verbs::FULL_ACCESS;

use super::Told;

/// Bytes of each region.
const REGION: usize = 32 << 10;
/// Receives that are posted for each peer, and the bytes of one.
const RECEIVES: usize = 8;
const RECEIVE: usize = 2048;
/// How long it waits for one thing.
const WAIT: Duration = Duration::from_millis(200);
/// How long a stream may last; a peer holds it for less.
const STREAM_MAX: Duration = Duration::from_secs(30);

pub struct Program {
    context: Context,
    listener: Listener,
}

/// Ends the threads, also when the test panics.
pub struct Ending<'a>(pub &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Program {
    pub fn new(daemon: &Daemon, at: SocketAddr) -> Self {
        let context = daemon.open();
        let listener = context
            .listen(at, ListenOptions::default().backlog(32))
            .expect("a free address");
        Self { context, listener }
    }

    /// Takes one peer after the other.
    pub fn serve(&self, over: &AtomicBool, told: &Told) {
        while !over.load(Ordering::Relaxed) {
            match self.listener.accept().wait(WAIT) {
                Ok(request) => self.take(request, told),
                Err(Error::Timeout { .. }) => {}
                Err(error) => panic!("the listener ended: {error}"),
            }
        }
    }

    fn take(&self, request: rnic::ConnectionRequest, told: &Told) {
        let pd = self.context.alloc_pd().unwrap();
        let cq = self.context.create_cq(64).unwrap();
        let qp = pd.create_qp(&cq, &cq, QpConfig::default()).unwrap();
        let given = pd.register(REGION, FULL_ACCESS).unwrap();
        let kept = pd.register(REGION, Access::LOCAL_WRITE).unwrap();
        kept.write(0, &Pattern::bytes(1, REGION)).unwrap();
        for number in 0..RECEIVES {
            let from = number * RECEIVE;
            let place = [given.slice(from..from + RECEIVE).unwrap()];
            qp.post_recv(WorkRequest::recv(number as u64, &place))
                .unwrap();
        }
        // The second STag is told too: that a peer knows it gives it nothing.
        let remote = given.remote(0..REGION).unwrap();
        let words = [&remote.to_bytes()[..], &kept.stag().to_be_bytes()].concat();
        match request
            .accept(&qp, AcceptOptions::default().private_data(words))
            .wait(STREAM_MAX)
        {
            Ok(_) => {
                told.accepted.fetch_add(1, Ordering::Relaxed);
                match qp.disconnected().wait(STREAM_MAX) {
                    Err(Error::Disconnected { reason, message }) => {
                        assert!(!message.is_empty(), "{reason:?} comes without a message");
                        if matches!(reason, DisconnectReason::TerminateSent { .. }) {
                            told.terminates.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    Ok(()) => {}
                    Err(error) => panic!("the stream should have ended: {error}"),
                }
            }
            Err(_) => {
                told.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
        let found = kept.to_vec(0..REGION).unwrap();
        assert!(
            found == Pattern::bytes(1, REGION),
            "a peer reached kept memory"
        );
    }
}
