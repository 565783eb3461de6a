//! A thread for each client: reads its requests, has the device carry them out, sends the replies.
//!
//! A client's fault costs it a refusal or its connection, and costs others nothing. A user has few more threads
//! than it may have clients. A client beyond that is closed without a reply. Accepting never waits, neither for
//! a client nor for a place.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rnic_device::{AUDIT, ClientSession, Credentials, Devices};
use rnic_host::heap;
use rnic_ipc::control::{Refusal, RefusalCode, Reply, Request, Response};
use rnic_ipc::transport::{Channel, Message, TransportError};
use rustix::net::Shutdown;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::closer::ChannelCloser;
use crate::open_files::{KEPT_THREADS, SPARE_THREADS, SPARE_THREADS_OF_USER};
use crate::reload::Reload;

/// How long a client may take to say Hello: until then it only keeps others out.
const HELLO: Duration = Duration::from_secs(5);
/// What it may say before that, of which device it means.
const QUESTIONS: usize = 8;
/// Between two looks at threads that are to end.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Clients {
    devices: Devices,
    reload: Arc<Reload>,
    /// Each with its user.
    threads: Vec<(u32, JoinHandle<()>)>,
    /// Closes those that get no thread.
    closer: ChannelCloser,
}

impl Clients {
    /// Of these devices, which refuse clients beyond their limits with a reason.
    pub(crate) fn new(devices: Devices, reload: Arc<Reload>, closer: ChannelCloser) -> Self {
        Self {
            devices,
            reload,
            threads: Vec::new(),
            closer,
        }
    }

    /// Serves a new client in a thread of its own, or closes its channel. Waits for nothing.
    pub(crate) fn serve(&mut self, channel: Channel) {
        let credentials = match credentials(&channel) {
            Ok(credentials) => credentials,
            Err(error) => {
                log::warn!("a client is refused, its credentials can't be read: {error}");
                return self.closer.close(channel);
            }
        };
        if !self.has_thread_for(credentials) {
            log::warn!(
                target: AUDIT,
                "a client ({credentials}) is disconnected: too many connect at once"
            );
            return self.closer.close(channel);
        }
        let channel = Arc::new(channel);
        let (devices, its) = (self.devices.clone(), channel.clone());
        let reload = self.reload.clone();
        let serve = move || serve(&devices, &reload, credentials, its);
        let thread = heap::start_thread("rnicd-client", heap::STACK, serve);
        match thread {
            Ok(thread) => self.threads.push((credentials.uid, thread)),
            Err(error) => {
                log::error!("a client is refused, no thread can be made for it: {error}");
                if let Some(channel) = Arc::into_inner(channel) {
                    self.closer.close(channel);
                }
            }
        }
    }

    /// Goes on closing the channels of those that were turned away. To be called before long when
    /// [`Self::are_leaving`].
    pub(crate) fn go_on_closing(&mut self) {
        self.closer.go_on();
    }

    /// Whether channels wait to be closed.
    pub(crate) fn are_leaving(&self) -> bool {
        self.closer.is_behind()
    }

    /// Whether so many do that no more are to be accepted.
    pub(crate) fn too_many_are_leaving(&self) -> bool {
        self.closer.is_full()
    }

    /// Whether a client of this user gets a thread: not beyond the user's number, and beyond that of
    /// all only an administrator's.
    fn has_thread_for(&mut self, credentials: Credentials) -> bool {
        self.threads.retain(|(_, thread)| !thread.is_finished());
        let threads = self.threads.iter();
        let of_user = threads.filter(|(uid, _)| *uid == credentials.uid).count();
        // Of root only its first message shows whether it is one.
        let may_be = credentials.uid == 0 || self.devices.administers(&credentials);
        let kept = if may_be { KEPT_THREADS } else { 0 };
        let (most, most_of_user) = self.devices.clients_max(credentials);
        let most = most as usize + SPARE_THREADS + kept;
        let most_of_user = most_of_user as usize;
        self.threads.len() < most && of_user < most_of_user + SPARE_THREADS_OF_USER
    }

    /// Waits for all threads, for at most `patience`; the device was shut down, so that they end.
    pub(crate) fn join(mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        while self.threads.iter().any(|(_, thread)| !thread.is_finished()) {
            if Instant::now() >= deadline {
                let unfinished = |(_, thread): &mut (u32, JoinHandle<()>)| !thread.is_finished();
                let left = self.threads.extract_if(.., unfinished);
                log::warn!(
                    "{} clients' threads are left to the process's end",
                    left.count()
                );
                break;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        for (_, thread) in self.threads {
            if thread.join().is_err() {
                log::error!("a client's thread panicked");
            }
        }
    }
}

/// Who a client is, as the kernel attests it.
fn credentials(channel: &Channel) -> Result<Credentials, TransportError> {
    let found = channel.peer_credentials()?;
    Ok(Credentials {
        uid: found.uid,
        gid: found.gid,
        // It is 0 at least.
        pid: u32::try_from(found.pid).unwrap_or(0),
        // Its first message shows it.
        superuser: false,
    })
}

/// The same with what its first message, for which it waits, shows of a client of uid 0.
fn with_authority(
    credentials: Credentials,
    channel: &Channel,
) -> Result<Credentials, TransportError> {
    let superuser = credentials.uid == 0 && channel.is_of_authority()?;
    Ok(Credentials {
        superuser,
        ..credentials
    })
}

fn serve(devices: &Devices, reload: &Reload, credentials: Credentials, mut channel: Arc<Channel>) {
    serve_until_gone(devices, reload, credentials, &channel);
    // Closing it may take as long as the client likes. So this thread is the last to have it, and not
    // who has just accepted it, or hangs up.
    while let Err(shared) = Arc::try_unwrap(channel) {
        channel = shared;
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn serve_until_gone(
    devices: &Devices,
    reload: &Reload,
    credentials: Credentials,
    channel: &Arc<Channel>,
) {
    let (session, first) = match greet((devices, reload), credentials, channel) {
        Ok(Some(greeted)) => greeted,
        Ok(None) => return log::debug!("{credentials} asked and hung up"),
        Err(reason) => {
            return log::warn!(target: AUDIT, "a client ({credentials}) is refused: {reason}");
        }
    };
    let socket = channel.clone();
    session.on_removal(Box::new(move |_| {
        // Ends both a read and a write that wait. A client that hung up has ended them already.
        let _ = rustix::net::shutdown(&*socket, Shutdown::Both);
    }));
    let interface = session.device().interface().to_owned();
    log::info!(
        "client {} connected on {interface}: {credentials}",
        session.client()
    );
    let end = requests(devices, credentials, &session, channel, first);
    log::info!("client {} is gone: {end}", session.client());
}

/// A first request, with the descriptors that came beside it, or what was wrong with it.
type First = Result<Message<Request>, TransportError>;

/// Answers a client's questions about devices, and carries out an administrator's orders, until it says
/// something else: then it is a client of one of them, or is told why not. Gives what it said, or nothing when it only asked.
fn greet(
    (devices, reload): (&Devices, &Reload),
    credentials: Credentials,
    channel: &Channel,
) -> Result<Option<(ClientSession, First)>, String> {
    set_socket_timeout(channel, Timeout::Recv, Some(HELLO))
        .map_err(|errno| format!("no time can be set for its Hello: {errno}"))?;
    let credentials = match with_authority(credentials, channel) {
        Ok(credentials) => credentials,
        Err(TransportError::WouldBlock) => return Err(silent()),
        Err(error) => return Err(error.to_string()),
    };
    let mut wanted = None;
    for _ in 0..QUESTIONS {
        let first = match channel.recv::<Request>() {
            Ok(None) => return Ok(None),
            Err(TransportError::WouldBlock) => return Err(silent()),
            Ok(Some(first)) => Ok(first),
            Err(error) => Err(error),
        };
        std::thread::sleep(devices.request_waits(credentials));
        let answer = match &first {
            Ok((Request::ListDevices, _)) => Ok(Response::Devices(devices.interfaces())),
            Ok((Request::ListInterfaces, _)) => Ok(Response::Interfaces(devices.all_interfaces())),
            Ok((Request::OpenDevice(name), _)) => devices.find(Some(name)).map(|_| {
                wanted = Some(name.clone());
                Response::Done
            }),
            Ok((Request::Administer(order), _)) => devices
                .check_administrator(&credentials)
                .and_then(|()| reload.ordered(order))
                .map(|()| Response::Done),
            _ => {
                std::thread::sleep(devices.client_waits(credentials));
                let session = devices
                    .find(wanted.as_ref())
                    .and_then(|device| device.connect_client(credentials));
                return match session {
                    Ok(session) => Ok(Some((session, first))),
                    Err(refusal) => {
                        let reason = refusal.to_string();
                        let reply: Reply = Err(refusal);
                        // What becomes of it is the client's business.
                        let _ = channel.try_send(&reply, &[]);
                        Err(reason)
                    }
                };
            }
        };
        send(channel, &answer, &[]).map_err(|error| error.to_string())?;
    }
    Err(format!("it asked {QUESTIONS} times before Hello"))
}

/// Serves requests until the client is gone; says how it went.
fn requests(
    devices: &Devices,
    credentials: Credentials,
    session: &ClientSession,
    channel: &Channel,
    first: First,
) -> String {
    let patience = |patience| set_socket_timeout(channel, Timeout::Recv, patience);
    let mut next = first.map(Some);
    loop {
        let (reply, fds) = match next {
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
                return silent();
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
        next = channel.recv::<Request>();
        if !matches!(next, Ok(None)) {
            // Nothing is held meanwhile but this thread.
            std::thread::sleep(devices.request_waits(credentials));
        }
    }
}

fn silent() -> String {
    format!("it said nothing for {HELLO:?}, not even Hello")
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
