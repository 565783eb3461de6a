//! The daemon dies: everybody learns of it, nobody hangs.

use std::time::{Duration, Instant};

use rnic_ipc::control::{Event, RefusalCode};

use super::fake::{Fake, queue_pair, refusal};
use crate::{Access, ConnectOptions, Error, ListenOptions, WorkCompletion, WorkRequest};

const LONG: Duration = Duration::from_secs(120);
const A_MOMENT: Duration = Duration::from_millis(30);

#[test]
fn blocked_calls_end() {
    let (mut fake, context) = Fake::start();
    let remote = "198.18.0.2:9000";
    let listener = context
        .listen(remote, ListenOptions::default().backlog(1))
        .unwrap();
    let (qp, cq) = queue_pair(&context);
    let started = Instant::now();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().wait(LONG).map(drop));
        let waiting = scope.spawn(|| cq.readable().wait(LONG));
        let connecting = scope.spawn(|| {
            let options = ConnectOptions::default();
            qp.connect(remote.parse().unwrap(), options)
                .wait(LONG)
                .map(drop)
        });
        std::thread::sleep(A_MOMENT);
        fake.kill();
        for thread in [accepting, waiting, connecting] {
            let found = thread.join().unwrap();
            assert!(matches!(found, Err(Error::DaemonGone)), "{found:?}");
        }
    });
    assert!(started.elapsed() < LONG / 4);
}

#[test]
fn a_program_that_only_polls_finds_out() {
    let (mut fake, context) = Fake::start();
    let cq = context.create_cq(4).unwrap();
    fake.complete(cq.id(), 1);
    fake.kill();
    let mut out = [WorkCompletion::default(); 4];
    assert_eq!(
        cq.poll(&mut out).unwrap(),
        1,
        "what was completed is still to be had"
    );
    let started = Instant::now();
    let error = loop {
        match cq.poll(&mut out) {
            Ok(count) => assert_eq!(count, 0),
            Err(error) => break error,
        }
        assert!(started.elapsed() < LONG / 4);
    };
    assert!(matches!(error, Error::DaemonGone));
}

#[test]
fn requests_and_posts_fail_and_drops_do_not_hang() {
    let (mut fake, context) = Fake::start();
    let pd = context.alloc_pd().unwrap();
    let region = pd.register(4096, Access::ALL).unwrap();
    let (qp, cq) = queue_pair(&context);
    fake.kill();
    assert!(matches!(
        pd.register(1, Access::ALL),
        Err(Error::DaemonGone)
    ));
    assert!(matches!(context.device_info(), Err(Error::DaemonGone)));
    assert!(matches!(
        qp.post_send(WorkRequest::send(1, &[])),
        Err(Error::DaemonGone)
    ));
    assert!(matches!(qp.take_event(), Err(Error::DaemonGone)));
    assert!(matches!(qp.disconnect().wait(LONG), Err(Error::DaemonGone)));
    // Its memory is this process's too.
    region.write(0, b"still there").unwrap();
    drop((qp, cq, region, pd, context));
}

/// Whichever call finds out, the reason is the daemon's.
#[test]
fn a_client_that_is_taken_away_is_told_why() {
    let (mut fake, context) = Fake::start();
    let pd = context.alloc_pd().unwrap();
    let (qp, cq) = queue_pair(&context);
    let why = refusal(RefusalCode::MemoryFault);
    fake.tell(&Event::SessionEnded(why.clone()));
    fake.kill();
    let told = [
        context.device_info().map(drop),
        pd.register(1, Access::ALL).map(drop),
        qp.post_send(WorkRequest::send(1, &[])),
        qp.take_event().map(drop),
        qp.disconnect().wait(LONG),
        cq.readable().wait(LONG),
    ];
    for found in told {
        let Err(Error::SessionEnded(found)) = found else {
            panic!("{found:?}");
        };
        assert_eq!(found, why);
    }
    drop((qp, cq, pd, context));
}
