//! The async forms, on an executor that knows nothing of them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context as Task, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use rnic_ipc::control::{
    DisconnectReason, Event, ListenSpec, MpaOptions, Refusal, RefusalCode, Request,
};
use rnic_ipc::id::{ConnRequestId, ListenerId};

use super::fake::{Fake, queue_pair};
use crate::{
    CompletionQueue, ConnectOptions, Error, ListenOptions, SrqConfig, WorkCompletion, block_on,
};

/// A lost wake-up would last for ever.
const SOON: Duration = Duration::from_secs(30);

type Job<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// An executor as a program might write one: tasks by number, and a queue of those to run.
#[derive(Default)]
struct Executor<'a> {
    jobs: Vec<Option<Job<'a>>>,
    ready: Arc<Ready>,
}

#[derive(Default)]
struct Ready {
    queue: Mutex<VecDeque<usize>>,
    filled: Condvar,
}

struct RunAgain {
    job: usize,
    ready: Arc<Ready>,
}

impl Wake for RunAgain {
    fn wake(self: Arc<Self>) {
        self.ready.queue.lock().unwrap().push_back(self.job);
        self.ready.filled.notify_one();
    }
}

impl<'a> Executor<'a> {
    fn spawn(&mut self, job: impl Future<Output = ()> + 'a) {
        self.ready.queue.lock().unwrap().push_back(self.jobs.len());
        self.jobs.push(Some(Box::pin(job)));
    }

    /// Runs all jobs to their ends.
    fn run(mut self) {
        let mut left = self.jobs.len();
        while left > 0 {
            let queue = self.ready.queue.lock().unwrap();
            let found = self
                .ready
                .filled
                .wait_timeout_while(queue, SOON, |queue| queue.is_empty());
            let next = found.unwrap().0.pop_front();
            let number = next.unwrap_or_else(|| panic!("{left} jobs wait for ever"));
            let waker = Waker::from(Arc::new(RunAgain {
                job: number,
                ready: self.ready.clone(),
            }));
            let Some(job) = &mut self.jobs[number] else {
                continue;
            };
            if job.as_mut().poll(&mut Task::from_waker(&waker)).is_ready() {
                self.jobs[number] = None;
                left -= 1;
            }
        }
    }
}

/// Polls a future once, by a waker that counts.
fn poll_once<F: Future>(future: Pin<&mut F>, woken: &Arc<Count>) -> Poll<F::Output> {
    future.poll(&mut Task::from_waker(&Waker::from(woken.clone())))
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn wait_until(what: &str, mut check: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !check() {
        assert!(begin.elapsed() < SOON, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn established(fake: &Fake, qp: rnic_ipc::id::QpNum) {
    fake.tell(&Event::Established {
        qp,
        mpa: MpaOptions::default(),
        peer: None,
        private_data: b"welcome".to_vec(),
    });
}

fn somewhere() -> SocketAddr {
    "198.18.0.2:9000".parse().unwrap()
}

#[test]
fn any_executor_gets_every_completion_of_every_queue() {
    const ROUNDS: u64 = 500;
    let (fake, context) = Fake::start();
    let queues = [(); 4].map(|()| context.create_cq(4).unwrap());
    let (taken, take) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let fake = &fake;
        let ids = queues.each_ref().map(CompletionQueue::id);
        scope.spawn(move || {
            for round in 0..ROUNDS {
                for id in ids {
                    fake.complete(id, round);
                }
                for _ in ids {
                    take.recv_timeout(SOON).unwrap();
                }
            }
        });
        let mut executor = Executor::default();
        for cq in &queues {
            let taken = taken.clone();
            executor.spawn(async move {
                for round in 0..ROUNDS {
                    assert_eq!(cq.next().await.unwrap().wr_id, round);
                    taken.send(()).unwrap();
                }
            });
        }
        executor.run();
    });
}

#[test]
fn tasks_that_share_a_queue_share_its_completions() {
    const EACH: usize = 300;
    let (fake, context) = Fake::start();
    let cq = context.create_cq(8).unwrap();
    let seen = Mutex::new(Vec::new());
    let done = || seen.lock().unwrap().len() == 3 * EACH;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for wr_id in 0..3 * EACH {
                fake.complete(cq.id(), wr_id as u64);
                wait_until("the completion was not taken", || {
                    seen.lock().unwrap().len() > wr_id
                });
            }
        });
        // One thread blocks, two tasks wait: the one that takes a wake-up takes it from none of the others.
        let mut executor = Executor::default();
        scope.spawn(|| {
            let mut out = [WorkCompletion::default()];
            while !done() {
                let _ = cq.readable().wait(Duration::from_millis(5));
                if cq.poll(&mut out).unwrap() == 1 {
                    seen.lock().unwrap().push(out[0].wr_id);
                }
            }
            // For the tasks, which wait for one more.
            fake.complete(cq.id(), u64::MAX);
        });
        for _ in 0..2 {
            executor.spawn(async {
                loop {
                    let wr_id = cq.next().await.unwrap().wr_id;
                    if wr_id == u64::MAX {
                        fake.complete(cq.id(), u64::MAX);
                        return;
                    }
                    seen.lock().unwrap().push(wr_id);
                }
            });
        }
        executor.run();
    });
    let mut seen = seen.into_inner().unwrap();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..3 * EACH as u64));
}

#[test]
fn requests_connections_and_ends_are_awaited() {
    let (fake, context) = Fake::start();
    let listener = context
        .listen(somewhere(), ListenOptions::default().backlog(1))
        .unwrap();
    // The fake numbers what it grants.
    let id = ListenerId(fake.asked().len() as u32);
    let (active, _cq) = queue_pair(&context);
    let (passive, _cq) = queue_pair(&context);
    let pd = context.alloc_pd().unwrap();
    let srq = pd.create_srq(SrqConfig::default()).unwrap();
    let mut executor = Executor::default();
    executor.spawn(async {
        let options = ConnectOptions::default();
        let found = active.connect(somewhere(), options).await.unwrap();
        assert_eq!(found.private_data, b"welcome");
        active.disconnect().await.unwrap();
        // How it ended stays.
        active.disconnected().await.unwrap();
    });
    executor.spawn(async {
        let request = listener.accept().await.unwrap();
        assert_eq!(request.private_data(), b"please");
        request.accept(&passive, Default::default()).await.unwrap();
        let end = passive.disconnected().await;
        assert!(matches!(end, Err(Error::Disconnected { .. })), "{end:?}");
    });
    executor.spawn(async {
        srq.limit_reached().await.unwrap();
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let asked = |wanted: fn(&Request) -> bool| {
                wait_until("nobody asked", || fake.asked().iter().any(wanted));
            };
            let listening = fake.asked().into_iter().any(
                |request| matches!(request, Request::Listen(ListenSpec { local, .. }) if local == somewhere()),
            );
            assert!(listening);
            asked(|request| matches!(request, Request::Connect { .. }));
            established(&fake, active.num());
            fake.tell(&Event::ConnectRequest {
                listener: id,
                request: ConnRequestId(1),
                local: somewhere(),
                remote: somewhere(),
                mpa: MpaOptions::default(),
                private_data: b"please".to_vec(),
            });
            asked(|request| matches!(request, Request::Accept { .. }));
            established(&fake, passive.num());
            asked(|request| matches!(request, Request::Disconnect { abort: false, .. }));
            for (qp, reason) in [
                (active.num(), DisconnectReason::Graceful),
                (passive.num(), DisconnectReason::Reset),
            ] {
                let message = "over".to_owned();
                fake.tell(&Event::Disconnected {
                    qp,
                    reason,
                    message,
                });
            }
            fake.tell(&Event::SrqLimit { srq: srq.id() });
        });
        executor.run();
    });
}

#[test]
fn a_connect_that_nobody_waits_for_is_aborted() {
    let (fake, context) = Fake::start();
    let (qp, _cq) = queue_pair(&context);
    let woken = Arc::<Count>::default();
    {
        let mut connecting = std::pin::pin!(qp.connect(somewhere(), ConnectOptions::default()));
        assert!(poll_once(connecting.as_mut(), &woken).is_pending());
    }
    let aborts = |request: &Request| matches!(request, Request::Disconnect { abort: true, .. });
    assert!(fake.asked().iter().any(aborts));
    assert_eq!(Arc::strong_count(&woken), 1, "a waker was left behind");
}

#[test]
fn a_neighbour_that_is_not_known_yet_is_waited_for_without_blocking() {
    let (fake, context) = Fake::start();
    fake.with(|state| state.neighbour_is_silent = true);
    let (qp, _cq) = queue_pair(&context);
    let woken = Arc::<Count>::default();
    let mut connecting = qp.connect(somewhere(), ConnectOptions::default());
    let has_begun = || {
        let asked = fake.asked();
        asked.iter().any(|it| matches!(it, Request::Connect { .. }))
    };
    assert!(poll_once(Pin::new(&mut connecting), &woken).is_pending());
    wait_until("its task does not run again", || {
        woken.0.load(Ordering::SeqCst) > 0
    });
    let late = connecting.wait(Duration::from_millis(5));
    assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    // However often it is polled, it asks when it is time to.
    for _ in 0..1000 {
        assert!(poll_once(Pin::new(&mut connecting), &woken).is_pending());
    }
    let asked = fake.asked();
    let resolves = asked
        .iter()
        .filter(|it| matches!(it, Request::Resolve { .. }));
    assert!(resolves.count() < 100);
    assert!(!has_begun());
    fake.with(|state| state.neighbour_is_silent = false);
    wait_until("it does not begin", || {
        assert!(poll_once(Pin::new(&mut connecting), &woken).is_pending());
        has_begun()
    });
    drop(connecting);
    assert_eq!(Arc::strong_count(&woken), 1, "a waker was left behind");
}

#[test]
fn a_neighbour_that_never_answers_is_an_error() {
    let (fake, context) = Fake::start();
    fake.with(|state| state.neighbour_is_silent = true);
    fake.refuse(|request| {
        let waited = matches!(request, Request::Resolve { waited_ms, .. } if *waited_ms >= 100);
        waited.then(|| Refusal {
            code: RefusalCode::Unreachable,
            message: "the neighbour asked, but it did not answer".to_owned(),
        })
    });
    let (qp, _cq) = queue_pair(&context);
    let error = block_on(qp.connect(somewhere(), ConnectOptions::default())).unwrap_err();
    let Error::Refused(refusal) = &error else {
        panic!("{error}");
    };
    assert_eq!(refusal.code, RefusalCode::Unreachable, "{error}");
}

#[test]
fn a_future_that_is_dropped_takes_no_completion_along() {
    let (fake, context) = Fake::start();
    let cq = context.create_cq(4).unwrap();
    let woken = Arc::<Count>::default();
    {
        let mut next = std::pin::pin!(cq.next());
        assert!(poll_once(next.as_mut(), &woken).is_pending());
        fake.complete(cq.id(), 7);
        wait_until("nobody was woken", || woken.0.load(Ordering::SeqCst) > 0);
    }
    assert_eq!(block_on(cq.next()).unwrap().wr_id, 7);
    assert_eq!(Arc::strong_count(&woken), 1, "a waker was left behind");
}

#[test]
fn trouble_ends_every_future() {
    let (mut fake, context) = Fake::start();
    let listener = context
        .listen(somewhere(), ListenOptions::default().backlog(1))
        .unwrap();
    let (qp, cq) = queue_pair(&context);
    let failing = context.create_cq(2).unwrap();
    let mut executor = Executor::default();
    let waiting = AtomicUsize::new(0);
    let wait = || waiting.fetch_add(1, Ordering::SeqCst);
    executor.spawn(async {
        wait();
        assert!(matches!(failing.next().await, Err(Error::CqOverflow)));
        wait();
    });
    executor.spawn(async {
        wait();
        assert!(matches!(cq.readable().await, Err(Error::DaemonGone)));
    });
    executor.spawn(async {
        wait();
        let request = listener.accept().await;
        assert!(matches!(request, Err(Error::DaemonGone)));
    });
    executor.spawn(async {
        wait();
        let connected = qp.connect(somewhere(), ConnectOptions::default());
        assert!(matches!(connected.await, Err(Error::DaemonGone)));
    });
    std::thread::scope(|scope| {
        let id = failing.id();
        scope.spawn({
            let waiting = &waiting;
            move || {
                wait_until("not all wait", || waiting.load(Ordering::SeqCst) == 4);
                fake.tell(&Event::CqError { cq: id });
                wait_until("it did not end", || waiting.load(Ordering::SeqCst) == 5);
                fake.kill();
            }
        });
        executor.run();
    });
}

#[test]
fn futures_may_move_between_threads() {
    fn is_send<T: Send>(_: T) {}
    let (_fake, context) = Fake::start();
    let listener = context
        .listen(somewhere(), ListenOptions::default().backlog(1))
        .unwrap();
    let (qp, cq) = queue_pair(&context);
    is_send(cq.readable());
    is_send(cq.next());
    is_send(listener.accept());
    is_send(qp.connect(somewhere(), ConnectOptions::default()));
    is_send(qp.disconnect());
}
