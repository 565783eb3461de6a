//! Clients that take away memory which the RNIC has: of huge pages, holes that nothing can fill. The
//! access faults in the daemon, which survives it, ends that client's session by name, believes in no
//! octet of it, and serves everybody else.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rnic::{
    Context, Error, MemoryRegion, Refusal, RefusalCode, RemoteMemory, WcStatus, WorkRequest,
};
use rnic_tests::huge_pages::{self, HUGE_PAGE, HugePages};
use rnic_tests::lab::Family;
use rnic_tests::pair::Pair;
use rnic_tests::pattern::Pattern;
use rnic_tests::verbs::{Endpoint, FULL_ACCESS, LIMIT, connect};
use rnic_tests::wait;

const PORT: u16 = 18515;
const PAGES: usize = 2;
const LEN: usize = PAGES * HUGE_PAGE;
/// Octets of a piece of work that finds the hole.
const WORK: usize = 20_000;

/// Posts what finds the hole.
type Work = fn(&Scene);

/// A client with a region of huge pages, and its peer.
struct Scene {
    peer: Endpoint,
    owner: Endpoint,
    region: MemoryRegion,
    memfd: OwnedFd,
}

impl Scene {
    fn new(pair: &Pair, port: u16) -> Self {
        let owner = Endpoint::new(&pair.daemon_b, 64);
        let memfd = huge_pages::memfd(PAGES);
        let region = owner.pd.register_fd(&memfd, 0, LEN, FULL_ACCESS);
        let region = region.expect("a sealed memfd of huge pages is memory as any other");
        let peer = Endpoint::new(&pair.daemon_a, LEN);
        connect(&peer, &owner, pair.b.address(Family::V4, port));
        let this = Self {
            peer,
            owner,
            region,
            memfd,
        };
        this.write_all();
        this
    }

    fn remote(&self) -> RemoteMemory {
        self.region.remote(0..LEN).expect("all of it")
    }

    /// The peer writes all of the region, reads it back, and both are what they must be.
    fn write_all(&self) {
        self.peer.fill(1);
        let all = [self.peer.element(0..LEN)];
        self.peer.post(WorkRequest::write(1, &all, self.remote()));
        assert_eq!(self.peer.completion().status, WcStatus::Success);
        self.peer.post(WorkRequest::read(2, &all, self.remote()));
        assert_eq!(self.peer.completion().status, WcStatus::Success);
        assert!(self.peer.holds(1));
        let found = self.region.to_vec(0..LEN).expect("all of it");
        assert!(found == Pattern::octets(1, LEN));
    }

    /// Has all pages taken away while `work` is posted again and again, until the client hears of it.
    fn take_away(&self, mut work: impl FnMut(&Self)) -> Refusal {
        let began = Instant::now();
        loop {
            // Other programs of the host may give back pages at any moment.
            huge_pages::punch(&self.memfd, PAGES);
            let _taken = huge_pages::take_all();
            work(self);
            std::thread::sleep(Duration::from_millis(50));
            match self.owner.context.device_info() {
                Err(Error::SessionEnded(why) | Error::Refused(why)) => return why,
                Err(error) => panic!("the client is told nothing but: {error}"),
                Ok(_) => assert!(began.elapsed() < LIMIT, "the hole was never found"),
            }
        }
    }
}

/// Says that it is over, also when what it stands beside panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Transfers between two clients that have done nothing wrong, until told to stop; each is verified.
fn transfer(pair: &Pair, port: u16, over: &AtomicBool) -> u64 {
    let a = Endpoint::new(&pair.daemon_a, 50_000);
    let b = Endpoint::new(&pair.daemon_b, 50_000);
    connect(&a, &b, pair.b.address(Family::V4, port));
    let mut count = 0;
    loop {
        a.fill(count);
        let all = [a.element(0..50_000)];
        a.post(WorkRequest::write(1, &all, b.remote()));
        assert_eq!(a.completion().status, WcStatus::Success);
        a.fill(count + 1000);
        a.post(WorkRequest::read(2, &all, b.remote()));
        assert_eq!(a.completion().status, WcStatus::Success);
        assert!(a.holds(count) && b.holds(count), "transfer {count}");
        count += 1;
        if over.load(Ordering::Relaxed) {
            return count;
        }
    }
}

#[test]
fn huge_pages_that_are_taken_away_cost_their_client_its_session_and_nobody_anything() {
    let mut pair = Pair::new("taken-away");
    let _more = HugePages::more(16);
    let work: [(&str, Work); 5] = [
        ("an RDMA Write", |scene| {
            let octets = [scene.peer.element(0..WORK)];
            let _ = scene
                .peer
                .qp
                .post_send(WorkRequest::write(3, &octets, scene.remote()));
        }),
        ("an RDMA Read", |scene| {
            let octets = [scene.peer.element(0..WORK)];
            let _ = scene
                .peer
                .qp
                .post_send(WorkRequest::read(3, &octets, scene.remote()));
        }),
        ("an Atomic Operation", |scene| {
            let octets = scene.peer.element(0..8);
            let add = WorkRequest::atomic_fetch_add(3, &octets, scene.remote(), 1);
            let _ = scene.peer.qp.post_send(add);
        }),
        ("a Send to it", |scene| {
            let place = [scene.region.slice(0..WORK).expect("octets of it")];
            let _ = scene.owner.qp.post_recv(WorkRequest::recv(3, &place));
            let octets = [scene.peer.element(0..WORK)];
            let _ = scene.peer.qp.post_send(WorkRequest::send(3, &octets));
        }),
        ("a Write from it", |scene| {
            let octets = [scene.region.slice(0..WORK).expect("octets of it")];
            let to = scene.peer.remote();
            let _ = scene.owner.qp.post_send(WorkRequest::write(3, &octets, to));
        }),
    ];
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let neighbour = scope.spawn(|| transfer(&pair, PORT + 99, &over));
        let end = Over(&over);
        for (number, (what, work)) in work.into_iter().enumerate() {
            let before = pair.daemon_b.counter("memory_faults");
            let scene = Scene::new(&pair, PORT + number as u16);
            let why = scene.take_away(work);
            assert_eq!(why.code, RefusalCode::MemoryFault, "{what}: {why}");
            let stag = format!("{:#010x}", scene.region.stag());
            assert!(
                why.message.contains(&stag),
                "{what}: {stag} is not in: {why}"
            );
            assert!(pair.daemon_b.counter("memory_faults") > before, "{what}");
            // Nobody took zeros for what the memory had held.
            let kept = Pattern::octets(1, LEN);
            let read = scene.peer.content();
            let same = read.iter().zip(&kept).filter(|(a, b)| a == b).count();
            assert!(
                what == "an Atomic Operation" || same == LEN,
                "{what}: {same} octets of {LEN}"
            );
            let _ = scene.peer.ending();
        }
        drop(end);
        assert!(neighbour.join().expect("the neighbour is well") > 0);
    });
    pair.daemon_b.assert_alive();
    wait::until("all that the clients had is gone", LIMIT, || {
        let counters = pair.daemon_b.counters();
        (counters["regions"] == 0 && counters["queue_pairs"] == 0).then_some(())
    });
    let log = pair.daemon_b.log();
    assert!(
        log.contains("is taken away: the memory of the region"),
        "{log}"
    );
    let _ = pair.daemon_b.stop();
}

#[test]
fn memory_of_huge_pages_needs_some_and_says_how_to_get_them() {
    let pair = Pair::new("huge-pages");
    let context = Context::open(pair.daemon_a.socket()).expect("the daemon serves");
    let pd = rnic::ProtectionDomain::alloc(&context).expect("a domain");
    let _more = HugePages::more(4);
    let region = pd
        .register_huge(3 << 20, FULL_ACCESS)
        .expect("there are pages");
    assert_eq!(region.len(), 3 << 20);
    drop(region);
    let _taken = huge_pages::take_all();
    let error = pd.register_huge(1, FULL_ACCESS).map(drop);
    let error = error.expect_err("no page is left").to_string();
    assert!(
        error.contains("1 huge pages") && error.contains("vm.nr_hugepages"),
        "{error}"
    );
}
