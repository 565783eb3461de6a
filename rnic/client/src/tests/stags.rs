//! STags that work makes valid: windows, fast regions, and regions that are registered again.

use rnic_ipc::control::{RegionSpec, Request, StagKind};
use rnic_ipc::work::{WR_ONE_STREAM, WR_SIGNALED, WrOpcode};

use super::fake::{Fake, queue_pair};
use crate::{Access, Error, Sge, WindowType};

#[test]
fn a_window_gets_another_key_with_each_binding_and_goes_by_its_first_name() {
    let (fake, context) = Fake::start();
    let (qp, _cq) = queue_pair(&context);
    let pd = context.alloc_pd().unwrap();
    let region = pd.register(100, Access::LOCAL_WRITE).unwrap();
    let window = pd.alloc_window(WindowType::Type2B).unwrap();
    let name = window.stag();
    let mut last = name;
    for _ in 0..12 {
        let (work, remote) = window.bind(7, &region, 10..30, Access::ALL).unwrap();
        assert_ne!(remote.stag, last);
        assert_eq!(remote.stag >> 8, name >> 8, "the index stays");
        assert_eq!((remote.addr, remote.len), (region.addr() + 10, 20));
        last = window.stag();
        assert_eq!(remote.stag, last);
        qp.post_send(work).unwrap();
        let found = fake.take_send(qp.num()).unwrap();
        assert_eq!(found.opcode(), Some(WrOpcode::BindWindow));
        assert_eq!(
            (found.slot.rkey, found.slot.remote_addr),
            (last, remote.addr)
        );
        let rights = u64::from(Access::ALL.bits()) << 32;
        let operands = [20, rights | u64::from(region.stag()), 0, 0];
        assert_eq!(found.operands(), Some(operands));
    }
    // A key of the program's own, whichever.
    for key in [7, 7, 0xff] {
        let bound = window.bind_with_key(7, &region, 10..30, Access::ALL, key);
        let (_, remote) = bound.unwrap();
        assert_eq!(remote.stag, name & !0xff | u32::from(key));
        assert_eq!(window.stag(), remote.stag);
    }
    for range in [90..101, 90..90] {
        let refused = window.bind(7, &region, range, Access::ALL);
        assert!(matches!(refused, Err(Error::Range { .. })));
    }
    drop(window);
    let asked = fake.asked();
    let gone = Request::DeregisterMemory { stag: name };
    assert_eq!(asked.last(), Some(&gone));
}

/// The RNIC would refuse it by ending the connection.
#[test]
fn nothing_is_bound_to_a_region_of_another_protection_domain() {
    let (_fake, context) = Fake::start();
    let pd = context.alloc_pd().unwrap();
    let other = context.alloc_pd().unwrap();
    let region = other.register(100, Access::LOCAL_WRITE).unwrap();
    let window = pd.alloc_window(WindowType::Type2B).unwrap();
    let fast = pd.alloc_fast_region().unwrap();
    let before = (window.stag(), fast.stag());
    let bound = window.bind(7, &region, 10..30, Access::ALL);
    assert!(matches!(bound, Err(Error::WrongPd)), "{bound:?}");
    let registered = fast.register(7, &region, 10..30, Access::ALL);
    assert!(matches!(registered, Err(Error::WrongPd)), "{registered:?}");
    assert_eq!((window.stag(), fast.stag()), before, "no key is used up");
}

#[test]
fn a_window_is_unbound_as_its_type_demands() {
    let (fake, context) = Fake::start();
    let (qp, _cq) = queue_pair(&context);
    let pd = context.alloc_pd().unwrap();
    for (window_type, kind, opcode) in [
        (
            WindowType::Type1,
            StagKind::WindowType1,
            WrOpcode::BindWindow,
        ),
        (
            WindowType::Type2B,
            StagKind::WindowType2B,
            WrOpcode::LocalInvalidate,
        ),
    ] {
        let window = pd.alloc_window(window_type).unwrap();
        let pd = pd.id();
        let asked = fake.asked();
        assert_eq!(asked.last(), Some(&Request::AllocStag { pd, kind }));
        qp.post_send(window.unbind(3)).unwrap();
        let found = fake.take_send(qp.num()).unwrap();
        assert_eq!(found.opcode(), Some(opcode));
        assert_eq!(found.slot.rkey, window.stag());
        assert_eq!(found.operands(), Some([0; 4]));
    }
}

#[test]
fn a_region_is_registered_again_under_another_key_and_goes_by_its_first_name() {
    let (fake, context) = Fake::start();
    let (qp, _cq) = queue_pair(&context);
    let region = qp.register(100, Access::LOCAL_WRITE).unwrap();
    let limited = fake.asked().iter().any(|request| {
        matches!(request, Request::RegisterMemory(RegionSpec { stream: Some(num), .. }) if *num == qp.num())
    });
    assert!(limited, "to the stream of the queue pair");
    let (name, addr) = (region.stag(), region.addr());
    let outside = region.reregister(7, 90..101, Access::ALL);
    assert!(matches!(outside, Err(Error::Range { .. })));
    assert_eq!(region.stag(), name, "no work, no other key");
    let (work, remote) = region.reregister(7, 10..30, Access::ALL).unwrap();
    assert_ne!(remote.stag, name);
    assert_eq!(remote.stag >> 8, name >> 8, "the index stays");
    let all = [
        region.stag(),
        region.remote(0..1).unwrap().stag,
        region.slice(0..1).unwrap().lkey,
    ];
    assert_eq!(all, [remote.stag; 3]);
    qp.post_send(work.of_one_stream()).unwrap();
    let found = fake.take_send(qp.num()).unwrap();
    assert_eq!(found.opcode(), Some(WrOpcode::FastRegister));
    assert_eq!(found.slot.flags, WR_SIGNALED | WR_ONE_STREAM);
    let (stag, to) = (found.slot.rkey, found.slot.remote_addr);
    assert_eq!((stag, to), (remote.stag, addr + 10));
    let rights = u64::from(Access::ALL.bits()) << 32;
    let operands = [20, rights | u64::from(remote.stag), 0, 0];
    assert_eq!(found.operands(), Some(operands), "it names itself");
    drop(region);
    let gone = Request::DeregisterMemory { stag: name };
    assert_eq!(fake.asked().last(), Some(&gone));
}

#[test]
fn a_fast_region_names_the_region_that_it_is_part_of() {
    let (fake, context) = Fake::start();
    let (qp, _cq) = queue_pair(&context);
    let pd = context.alloc_pd().unwrap();
    let region = pd.register(100, Access::LOCAL_WRITE).unwrap();
    let fast = pd.alloc_fast_region().unwrap();
    let name = fast.stag();
    let (work, remote) = fast
        .register(7, &region, 10..30, Access::LOCAL_WRITE)
        .unwrap();
    assert_eq!((remote.stag, remote.len), (fast.stag(), 20));
    assert_ne!(remote.stag, name);
    let element = fast.slice(&region, 12..14).unwrap();
    let expected = Sge {
        addr: region.addr() + 12,
        length: 2,
        lkey: fast.stag(),
    };
    assert_eq!(element, expected);
    qp.post_send(work).unwrap();
    let found = fake.take_send(qp.num()).unwrap();
    assert_eq!(found.opcode(), Some(WrOpcode::FastRegister));
    assert_eq!(found.slot.flags & WR_ONE_STREAM, 0);
    let rights = u64::from(Access::LOCAL_WRITE.bits()) << 32;
    let operands = [20, rights | u64::from(region.stag()), 0, 0];
    assert_eq!(found.operands(), Some(operands));
    drop(fast);
    let gone = Request::DeregisterMemory { stag: name };
    assert_eq!(fake.asked().last(), Some(&gone));
}

#[test]
fn rights_survive_as_bits_of_a_work_request() {
    for bits in 0..16 {
        assert_eq!(Access::from_bits(bits).bits(), bits);
    }
    assert_eq!(Access::from_bits(!0), Access::ALL);
}
