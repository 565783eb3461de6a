//! A thread for each client: reads its requests, has the device carry them out, sends the replies.
//!
//! What a client does wrong costs it a refusal or its connection, and nobody else anything.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rnic_device::{ClientSession, Credentials, Device};
use rnic_ipc::control::{Refusal, RefusalCode, Reply, Request};
use rnic_ipc::transport::{Channel, TransportError};
use rustix::net::Shutdown;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

/// How long a client that is turned away may take to ask why.
const TURN_AWAY: Duration = Duration::from_secs(1);
/// How long a client may take to say Hello: until then it only keeps others out.
const HELLO: Duration = Duration::from_secs(5);
/// Between two looks at threads that are to end.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The threads of all clients.
#[derive(Debug)]
pub(crate) struct Clients {
    device: Arc<Device>,
    threads: Vec<JoinHandle<()>>,
    most: usize,
}

impl Clients {
    /// At most `most` threads at one time. The device has its own, lower limit of clients, beyond
    /// which it refuses them with a reason.
    pub(crate) fn new(device: Arc<Device>, most: usize) -> Self {
        Self {
            device,
            threads: Vec::new(),
            most,
        }
    }

    /// Whether there may be one more thread.
    pub(crate) fn has_room(&mut self) -> bool {
        self.threads.retain(|thread| !thread.is_finished());
        self.threads.len() < self.most
    }

    /// Serves a new client in a thread of its own. Ask [`Self::has_room`] before.
    pub(crate) fn serve(&mut self, channel: Channel) {
        let device = self.device.clone();
        let thread = std::thread::Builder::new()
            .name("rnicd-client".to_owned())
            .spawn(move || serve(&device, Arc::new(channel)));
        match thread {
            Ok(thread) => self.threads.push(thread),
            Err(error) => log::error!("a client is turned away, no thread for it: {error}"),
        }
    }

    /// Waits for all threads, for at most `patience`; the device was shut down, so that they end.
    pub(crate) fn join(mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        while self.threads.iter().any(|thread| !thread.is_finished()) {
            if Instant::now() >= deadline {
                let left = self.threads.extract_if(.., |thread| !thread.is_finished());
                log::warn!(
                    "{} clients' threads are left to the process's end",
                    left.count()
                );
                break;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        for thread in self.threads {
            if thread.join().is_err() {
                log::error!("a client's thread panicked");
            }
        }
    }
}

fn serve(device: &Arc<Device>, channel: Arc<Channel>) {
    let credentials = match channel.peer_credentials() {
        Ok(found) => Credentials {
            uid: found.uid,
            gid: found.gid,
            // It is 0 at least.
            pid: u32::try_from(found.pid).unwrap_or(0),
        },
        Err(error) => {
            log::warn!("a client is turned away, it can't be known: {error}");
            return;
        }
    };
    let session = match device.connect_client(credentials) {
        Ok(session) => session,
        Err(refusal) => {
            log::warn!("a client ({credentials}) is turned away: {refusal}");
            turn_away(&channel, refusal);
            return;
        }
    };
    let socket = channel.clone();
    session.on_removal(Box::new(move |_| {
        // Ends both a read and a write that wait. A client that hung up has ended them already.
        let _ = rustix::net::shutdown(&*socket, Shutdown::Both);
    }));
    log::info!("client {} connected: {credentials}", session.client());
    let end = requests(&session, &channel);
    log::info!("client {} is gone: {end}", session.client());
}

/// Answers a client's first request, if it comes soon, with the refusal.
fn turn_away(channel: &Channel, refusal: Refusal) {
    let soon = set_socket_timeout(channel, Timeout::Recv, Some(TURN_AWAY));
    if soon.is_ok() && channel.recv::<Request>().is_ok() {
        let reply: Reply = Err(refusal);
        // What becomes of it is the client's business.
        let _ = channel.try_send(&reply, &[]);
    }
}

/// Serves requests until the client is gone; says how it went.
fn requests(session: &ClientSession, channel: &Channel) -> String {
    let patience = |patience| set_socket_timeout(channel, Timeout::Recv, patience);
    if let Err(errno) = patience(Some(HELLO)) {
        return format!("no time can be set for its Hello: {errno}");
    }
    loop {
        let (reply, fds) = match channel.recv::<Request>() {
            Ok(Some((request, fds))) => {
                let greeted = matches!(request, Request::Hello { .. });
                let answer = session.request(request, fds);
                if greeted
                    && answer.0.is_ok()
                    && let Err(errno) = patience(None)
                {
                    return format!("its time can't be unlimited: {errno}");
                }
                answer
            }
            Err(TransportError::WouldBlock) => {
                return format!("it said nothing for {HELLO:?}, not even Hello");
            }
            Ok(None) => return "it hung up".to_owned(),
            Err(
                error @ (TransportError::TooLong
                | TransportError::TooManyDescriptors { .. }
                | TransportError::Decode(_)
                | TransportError::Trailing { .. }),
            ) => (Err(malformed(&error)), Vec::new()),
            Err(error) => return error.to_string(),
        };
        if let Err(error) = send(channel, &reply, &fds) {
            return error.to_string();
        }
    }
}

fn send(channel: &Channel, reply: &Reply, fds: &[OwnedFd]) -> Result<(), TransportError> {
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    channel.send(reply, &fds)
}

fn malformed(error: &TransportError) -> Refusal {
    Refusal {
        code: RefusalCode::Malformed,
        message: error.to_string(),
    }
}
