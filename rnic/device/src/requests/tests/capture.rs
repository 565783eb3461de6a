//! Captures that clients ask for: who may, how many, and that none holds the RNIC.

use std::io::Read;
use std::os::unix::net::UnixStream;

use rnic_ipc::capture::{Direction, Filter, RECORD_HEADER, RecordHeader};

use super::*;

const ROOT: Credentials = Credentials {
    uid: 0,
    gid: 0,
    pid: 1,
    superuser: true,
};

fn start(session: &ClientSession, filter: Filter) -> UnixStream {
    match session.request(Request::StartCapture(filter), Vec::new()) {
        (Ok(Response::Capture), mut fds) if fds.len() == 1 => UnixStream::from(fds.remove(0)),
        reply => panic!("{reply:?}"),
    }
}

/// All records until the last one: what each says, and its bytes.
fn records(mut stream: UnixStream) -> (Vec<(RecordHeader, Vec<u8>)>, RecordHeader) {
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).unwrap();
    let mut found = Vec::new();
    loop {
        let mut header = [0; RECORD_HEADER];
        stream.read_exact(&mut header).unwrap();
        let header = RecordHeader::from_bytes(&header).unwrap();
        if header.is_last() {
            assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the end");
            return (found, header);
        }
        let mut bytes = vec![0; header.kept as usize];
        stream.read_exact(&mut bytes).unwrap();
        found.push((header, bytes));
    }
}

/// Frames come from the link until as many were taken or lost as are wanted.
fn push(bench: &Bench, frames: u64) {
    let seen = || bench.level("capture_frames") + bench.level("capture_dropped");
    let before = seen();
    for number in 0..frames {
        bench.until("room for a frame", || bench.wire.push(&[number as u8; 60]));
    }
    bench.until("the frames are seen", || seen() >= before + frames);
}

#[test]
fn an_administrator_gets_every_frame_and_how_many_were_lost() {
    for bench in both() {
        let session = bench.client_of(ROOT);
        let stream = start(&session, Filter::default());
        push(&bench, 3);
        assert_eq!(ask(&session, Request::StopCapture), Ok(Response::Done));
        let (found, last) = records(stream);
        let bytes: Vec<_> = found.iter().map(|(_, bytes)| bytes.clone()).collect();
        assert_eq!(bytes, [[0; 60], [1; 60], [2; 60]]);
        let inbound = |(header, _): &(RecordHeader, _)| header.direction == Direction::In;
        assert!(found.iter().all(inbound));
        assert_eq!(last.lost, 0);
        // Twice is as good as once, and another may begin.
        assert_eq!(ask(&session, Request::StopCapture), Ok(Response::Done));
        let filter = Filter {
            snap: Some(14),
            ..Filter::default()
        };
        let stream = start(&session, filter);
        push(&bench, 1);
        assert_eq!(ask(&session, Request::StopCapture), Ok(Response::Done));
        let (found, _) = records(stream);
        assert_eq!(found[0].0.original, 60);
        assert_eq!(found[0].1, [0; 14]);
    }
}

#[test]
fn nobody_else_may_capture() {
    for bench in both() {
        let session = bench.client();
        let asked = ask(&session, Request::StartCapture(Filter::default()));
        assert_eq!(refused(asked), RefusalCode::NotPermitted);
    }
}

#[test]
fn a_client_has_one_capture_and_the_device_four() {
    for bench in both() {
        let start_one = || Request::StartCapture(Filter::default());
        let sessions: Vec<_> = (0..5).map(|_| bench.client_of(ROOT)).collect();
        let streams: Vec<_> = sessions[..4]
            .iter()
            .map(|session| start(session, Filter::default()))
            .collect();
        let second = refused(ask(&sessions[0], start_one()));
        assert_eq!(second, RefusalCode::WrongState);
        let fifth = &sessions[4];
        assert_eq!(refused(ask(fifth, start_one())), RefusalCode::Limit);
        // It has no other effect: frames come to all.
        push(&bench, 1);
        drop(sessions);
        for stream in streams {
            drop(stream);
        }
        let session = bench.client_of(ROOT);
        drop(start(&session, Filter::default()));
    }
}

/// As a program that was stopped (SIGSTOP), and one that was killed.
#[test]
fn who_does_not_read_or_hangs_up_loses_frames_and_holds_nobody() {
    for bench in both() {
        let [idle, gone] = [bench.client_of(ROOT), bench.client_of(ROOT)];
        let unread = start(&idle, Filter::default());
        drop(start(&gone, Filter::default()));
        // More than buffers and socket hold.
        push(&bench, 12_000);
        bench.until("both lose frames", || {
            bench.level("capture_dropped") > 12_000 - 4096
        });
        assert!(bench.level("capture_frames") > 0);
        assert_eq!(ask(&idle, Request::StopCapture), Ok(Response::Done));
        let (found, last) = records(unread);
        assert!(last.lost > 0);
        let sane = |pair: &[(RecordHeader, _)]| pair[0].0.lost <= pair[1].0.lost;
        assert!(found.windows(2).all(sane));
        // One that was stopped and not read ends with its client.
        let unread = start(&idle, Filter::default());
        push(&bench, 6000);
        drop((idle, gone));
        drop(unread);
    }
}
