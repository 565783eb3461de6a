//! A peer or a program that reaches for what it was not given gets a named error, changes no byte,
//! and takes nobody else along.
//!
//! A Terminate's control field is its layer, error type and error code: RFC 5040 section 4.8 for
//! RDMAP (layer 0), RFC 5041 section 8.1 for DDP (layer 1).

use rnic::{Access, DisconnectReason, QpState, RemoteMemory, Sge, WcStatus, WorkRequest};
use rnic_tests::lab::Family;
use rnic_tests::pair::Pair;
use rnic_tests::verbs::{Endpoint, connect};

const PORT: u16 = 18515;
const REGION: usize = 8192;

/// Two connected endpoints that will be wronged, and two that must not notice.
struct Case {
    a: Endpoint,
    b: Endpoint,
    other_a: Endpoint,
    other_b: Endpoint,
    pair: Pair,
}

impl Case {
    fn new(name: &str) -> Self {
        let pair = Pair::new(name);
        let ends = |port| {
            let a = Endpoint::new(&pair.daemon_a, REGION);
            let b = Endpoint::new(&pair.daemon_b, REGION);
            b.fill(2);
            connect(&a, &b, pair.b.address(Family::V4, port));
            (a, b)
        };
        let (a, b) = ends(PORT);
        let (other_a, other_b) = ends(PORT + 1);
        Self {
            a,
            b,
            other_a,
            other_b,
            pair,
        }
    }

    /// Both ends were told the same reason, it was counted once, no byte of `b` changed, and the
    /// others go on.
    #[track_caller]
    fn ends_with(mut self, control: u16, counter: &str) {
        assert_eq!(
            self.a.ending(),
            DisconnectReason::TerminateReceived { control }
        );
        assert_eq!(self.b.ending(), DisconnectReason::TerminateSent { control });
        assert_eq!(self.pair.daemon_b.counter(counter), 1, "{counter}");
        self.nothing_else_broke();
    }

    #[track_caller]
    fn nothing_else_broke(&mut self) {
        assert_eq!(
            self.a.qp.state().expect("the daemon answers"),
            QpState::Error
        );
        assert!(self.b.holds(2), "the peer's memory was changed");
        self.pair.daemon_a.assert_alive();
        self.pair.daemon_b.assert_alive();
        self.other_a.fill(3);
        let all = [self.other_a.element(0..REGION)];
        self.other_a
            .post(WorkRequest::write(1, &all, self.other_b.remote()));
        let completion = self.other_a.completion();
        assert_eq!(
            (completion.wr_id, completion.status),
            (1, WcStatus::Success)
        );
        self.other_a.fill(4);
        self.other_a
            .post(WorkRequest::read(2, &all, self.other_b.remote()));
        let completion = self.other_a.completion();
        assert_eq!(
            (completion.wr_id, completion.status),
            (2, WcStatus::Success)
        );
        assert!(self.other_a.holds(3), "the bystander's bytes changed");
    }

    /// A Write of 100 bytes from `a`.
    fn write(&self, to: RemoteMemory) {
        self.a
            .post(WorkRequest::write(7, &[self.a.element(0..100)], to));
    }

    /// A Read of 100 bytes by `a`, which has to fail.
    #[track_caller]
    fn read(&self, from: RemoteMemory) {
        self.a
            .post(WorkRequest::read(8, &[self.a.element(0..100)], from));
        let completion = self.a.completion();
        assert_eq!(
            (completion.wr_id, completion.status),
            (8, WcStatus::RemoteAccess)
        );
        assert!(
            self.a.content().iter().all(|byte| *byte == 0),
            "a refused Read changed the sink"
        );
    }
}

#[test]
fn a_write_to_an_unknown_stag_ends_the_stream() {
    let case = Case::new("write-stag");
    case.write(RemoteMemory {
        stag: case.b.remote().stag ^ 1,
        ..case.b.remote()
    });
    case.ends_with(0x1100, "refused_invalid_stag");
}

#[test]
fn a_write_beyond_the_end_of_the_region_ends_the_stream() {
    let case = Case::new("write-bounds");
    case.write(case.b.remote().offset(REGION as u64 - 99));
    case.ends_with(0x1101, "refused_base_or_bounds");
}

#[test]
fn a_write_before_the_start_of_the_region_ends_the_stream() {
    let case = Case::new("write-before");
    let remote = case.b.remote();
    case.write(RemoteMemory {
        addr: remote.addr - 1,
        ..remote
    });
    case.ends_with(0x1101, "refused_base_or_bounds");
}

#[test]
fn a_write_to_another_protection_domain_ends_the_stream() {
    let case = Case::new("write-pd");
    let pd = case.b.context.alloc_pd().unwrap();
    let foreign = pd.register(REGION, rnic_tests::verbs::FULL_ACCESS).unwrap();
    case.write(foreign.remote(0..REGION).unwrap());
    case.ends_with(0x1102, "refused_stag_not_associated");
    assert_eq!(foreign.to_vec(0..REGION).unwrap(), vec![0; REGION]);
}

#[test]
fn a_write_to_another_clients_region_ends_the_stream() {
    let case = Case::new("write-client");
    case.write(case.other_b.remote());
    case.ends_with(0x1102, "refused_stag_not_associated");
}

#[test]
fn a_write_to_a_region_that_was_taken_back_ends_the_stream() {
    let case = Case::new("write-gone");
    let region = case
        .b
        .pd
        .register(REGION, rnic_tests::verbs::FULL_ACCESS)
        .unwrap();
    let remote = region.remote(0..REGION).unwrap();
    drop(region);
    case.write(remote);
    case.ends_with(0x1100, "refused_invalid_stag");
}

#[test]
fn a_write_without_the_right_to_ends_the_stream() {
    let case = Case::new("write-right");
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let region = case.b.pd.register(REGION, rights).unwrap();
    case.write(region.remote(0..REGION).unwrap());
    // DDP has no code for rights, RDMAP has.
    case.ends_with(0x0102, "refused_access_rights");
    assert_eq!(region.to_vec(0..REGION).unwrap(), vec![0; REGION]);
}

#[test]
fn a_read_from_an_unknown_stag_ends_the_stream() {
    let case = Case::new("read-stag");
    case.read(RemoteMemory {
        stag: case.b.remote().stag ^ 1,
        ..case.b.remote()
    });
    case.ends_with(0x0100, "refused_invalid_stag");
}

#[test]
fn a_read_beyond_the_end_of_the_region_ends_the_stream() {
    let case = Case::new("read-bounds");
    case.read(case.b.remote().offset(REGION as u64 - 99));
    case.ends_with(0x0101, "refused_base_or_bounds");
}

#[test]
fn a_read_without_the_right_to_ends_the_stream() {
    let case = Case::new("read-right");
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let region = case.b.pd.register(REGION, rights).unwrap();
    case.read(region.remote(0..REGION).unwrap());
    case.ends_with(0x0102, "refused_access_rights");
}

#[test]
fn a_read_from_another_protection_domain_ends_the_stream() {
    let case = Case::new("read-pd");
    case.read(case.other_b.remote());
    case.ends_with(0x0103, "refused_stag_not_associated");
}

#[test]
fn a_send_longer_than_the_receive_ends_the_stream() {
    let case = Case::new("send-long");
    let small = case
        .b
        .pd
        .register(100, rnic_tests::verbs::FULL_ACCESS)
        .unwrap();
    let receive = [small.slice(0..99).unwrap()];
    case.b.qp.post_recv(WorkRequest::recv(5, &receive)).unwrap();
    case.a.post(WorkRequest::send(6, &[case.a.element(0..100)]));
    let completion = case.b.completion();
    assert_eq!(
        (completion.wr_id, completion.status),
        (5, WcStatus::LocalLength)
    );
    assert_eq!(
        small.to_vec(99..100).unwrap(),
        [0],
        "a byte beyond the receive was written"
    );
    case.ends_with(0x1205, "refused_send_too_long");
}

#[test]
fn a_send_without_a_receive_ends_the_stream() {
    let case = Case::new("send-none");
    case.a.post(WorkRequest::send(6, &[case.a.element(0..100)]));
    case.ends_with(0x1202, "refused_no_receive");
}

/// Posts a Send of an element that the program may not use.
#[track_caller]
fn wrong_element(name: &str, element: impl FnOnce(&Case) -> Sge) {
    let mut case = Case::new(name);
    let element = element(&case);
    case.a.post(WorkRequest::send(9, &[element]));
    let completion = case.a.completion();
    assert_eq!(
        (completion.wr_id, completion.status),
        (9, WcStatus::LocalProtection)
    );
    // The peer hears of it too: RDMAP's local catastrophic error (RFC 5040 section 7.1).
    let control = 0x0000;
    assert_eq!(case.a.ending(), DisconnectReason::LocalError);
    assert_eq!(
        case.b.ending(),
        DisconnectReason::TerminateReceived { control }
    );
    case.nothing_else_broke();
}

#[test]
fn a_local_element_with_an_unknown_stag_is_refused() {
    wrong_element("local-stag", |case| {
        let element = case.a.element(0..100);
        Sge {
            lkey: element.lkey ^ 1,
            ..element
        }
    });
}

#[test]
fn a_local_element_beyond_the_end_of_its_region_is_refused() {
    wrong_element("local-bounds", |case| {
        let element = case.a.element(0..REGION);
        Sge {
            addr: element.addr + 1,
            ..element
        }
    });
}

#[test]
fn a_local_element_that_wraps_around_is_refused() {
    wrong_element("local-wrap", |case| {
        let element = case.a.element(0..100);
        Sge {
            addr: u64::MAX - 10,
            ..element
        }
    });
}

#[test]
fn a_local_element_of_another_protection_domain_is_refused() {
    let mut region = None;
    wrong_element("local-pd", |case| {
        let pd = case.a.context.alloc_pd().unwrap();
        let region = region.insert(pd.register(REGION, rnic_tests::verbs::FULL_ACCESS).unwrap());
        region.slice(0..100).unwrap()
    });
}

#[test]
fn a_local_element_of_another_client_is_refused() {
    wrong_element("local-client", |case| case.other_a.element(0..100));
}
