//! What the control channel carries and what it refuses.

use std::io::{Read, Seek, Write};

use crate::control::ConnectSpec;

use super::*;
use crate::control::{PRIVATE_DATA_MAX, Reply, Request, Response};
use crate::id::{PdId, QpNum};

fn pipe() -> OwnedFd {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .unwrap()
        .0
}

#[test]
fn messages_arrive_whole_and_in_order() {
    let (a, b) = Channel::pair().unwrap();
    let sent = [
        Request::Hello { version: 1 },
        Request::DeallocPd { pd: PdId(7) },
        Request::Connect {
            qp: QpNum(3),
            spec: ConnectSpec {
                remote: "198.18.0.1:80".parse().unwrap(),
                local: None,
                local_port: 0,
                transport: crate::control::Transport::Tcp,
                mpa: Default::default(),
                private_data: vec![9; PRIVATE_DATA_MAX],
            },
        },
    ];
    for request in &sent {
        a.send(request, &[]).unwrap();
    }
    for request in sent {
        assert_eq!(b.recv::<Request>().unwrap().unwrap().0, request);
    }
    assert!(matches!(
        b.try_recv::<Request>(),
        Err(TransportError::WouldBlock)
    ));
}

#[test]
fn descriptors_travel_in_order_and_are_not_inherited() {
    let (a, b) = Channel::pair().unwrap();
    let mut file = tempfile();
    file.write_all(b"first").unwrap();
    let other = pipe();
    a.send(&Request::AllocPd, &[file.as_fd(), other.as_fd()])
        .unwrap();
    let (_, fds) = b.recv::<Request>().unwrap().unwrap();
    assert_eq!(fds.len(), 2);
    for fd in &fds {
        let flags = rustix::io::fcntl_getfd(fd).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
    let mut first = std::fs::File::from(fds.into_iter().next().unwrap());
    first.rewind().unwrap();
    let mut text = String::new();
    first.read_to_string(&mut text).unwrap();
    assert_eq!(text, "first");
}

fn tempfile() -> std::fs::File {
    let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    std::fs::File::from(fd)
}

#[test]
fn a_closed_channel_is_no_error_to_the_reader_and_one_to_the_writer() {
    let (a, b) = Channel::pair().unwrap();
    a.send(&Request::AllocPd, &[]).unwrap();
    drop(a);
    assert!(b.recv::<Request>().unwrap().is_some());
    assert!(b.recv::<Request>().unwrap().is_none());
    assert!(matches!(
        b.send(&Request::AllocPd, &[]),
        Err(TransportError::Closed)
    ));
}

#[test]
fn what_does_not_decode_is_the_senders_fault_and_the_next_message_is_fine() {
    let (a, b) = Channel::pair().unwrap();
    let raw = |bytes: &[u8]| {
        rustix::net::send(&a, bytes, SendFlags::empty()).unwrap();
    };
    raw(&[0xff; 10]);
    assert!(matches!(
        b.recv::<Request>(),
        Err(TransportError::Decode(_))
    ));
    let mut two = postcard::to_stdvec(&Request::AllocPd).unwrap();
    two.push(0);
    raw(&two);
    assert!(matches!(
        b.recv::<Request>(),
        Err(TransportError::Trailing { bytes: 1 })
    ));
    raw(&[0; CONTROL_MESSAGE_MAX + 1]);
    assert!(matches!(b.recv::<Request>(), Err(TransportError::TooLong)));
    a.send(&Request::AllocPd, &[]).unwrap();
    assert!(b.recv::<Request>().unwrap().is_some());
}

#[test]
fn more_descriptors_than_fit_are_refused_and_closed() {
    let (a, b) = Channel::pair().unwrap();
    let read_end = pipe();
    let too_many = [read_end.as_fd(); REPLY_DESCRIPTORS_MAX + 1];
    assert!(matches!(
        a.send(&Request::AllocPd, &too_many),
        Err(TransportError::TooManyDescriptors { .. })
    ));
    // A hostile sender asks nobody.
    for count in [DESCRIPTORS_MAX + 1, 100] {
        let fds = vec![read_end.as_fd(); count];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(100))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let slices = [IoSlice::new(&[1])];
        rustix::net::sendmsg(&a, &slices, &mut control, SendFlags::empty()).unwrap();
        assert!(matches!(
            b.recv::<Request>(),
            Err(TransportError::TooManyDescriptors { .. })
        ));
    }
}

#[test]
fn a_reply_may_have_more_descriptors_than_a_request() {
    let (a, b) = Channel::pair().unwrap();
    let read_end = pipe();
    let reply: Reply = Ok(Response::Done);
    let most = [read_end.as_fd(); REPLY_DESCRIPTORS_MAX];
    a.send(&reply, &most).unwrap();
    let (_, fds) = b.recv_reply().unwrap().unwrap();
    assert_eq!(fds.len(), most.len());
    a.send(&reply, &most).unwrap();
    assert!(matches!(
        b.recv::<Reply>(),
        Err(TransportError::TooManyDescriptors { .. })
    ));
}

#[test]
fn a_message_that_is_too_long_is_not_sent() {
    let (a, _b) = Channel::pair().unwrap();
    let counters = vec![("x".repeat(100), 1); 100];
    let reply: Reply = Ok(Response::Counters(counters));
    assert!(matches!(
        a.send(&reply, &[]),
        Err(TransportError::Encode(_))
    ));
}

#[test]
fn a_full_socket_blocks_nobody_who_only_tries() {
    let (a, _b) = Channel::pair().unwrap();
    let mut sent = 0;
    let end = loop {
        match a.try_send(&Request::AllocPd, &[]) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 1_000_000);
    };
    assert!(matches!(end, TransportError::WouldBlock));
}

#[test]
fn a_missing_socket_is_named() {
    let error = Channel::connect("/nonexistent/rnicd.sock").unwrap_err();
    assert!(
        error.to_string().contains("/nonexistent/rnicd.sock"),
        "{error}"
    );
}

#[test]
fn a_listener_knows_who_connects() {
    let path = std::env::temp_dir().join(format!("rnic-ipc-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = ChannelListener::bind(&path, 4).unwrap();
    assert!(matches!(
        ChannelListener::bind(&path, 4),
        Err(TransportError::Bind { .. })
    ));
    let client = Channel::connect(&path).unwrap();
    let server = listener.accept().unwrap();
    std::fs::remove_file(&path).unwrap();
    let found = server.peer_credentials().unwrap();
    assert_eq!(found.pid, std::process::id() as i32);
    assert_eq!(found.uid, rustix::process::geteuid().as_raw());
    client.send(&Request::AllocPd, &[]).unwrap();
    assert!(server.recv::<Request>().unwrap().is_some());
}

/// The tests' own process is whom the daemon's is here, so that a process without any right may say to be it.
#[test]
fn only_who_may_speak_for_the_daemon_is_of_authority() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.sock");
    let listener = ChannelListener::bind(&path, 4).unwrap();
    let client = Channel::connect(&path).unwrap();
    let daemon = listener.accept().unwrap();
    let claims = rustix::process::geteuid().is_root();
    for (descriptors, is_one) in [(0, claims), (1, false), (4, false)] {
        let pipes: Vec<_> = (0..descriptors).map(|_| pipe()).collect();
        let fds: Vec<_> = pipes.iter().map(AsFd::as_fd).collect();
        client.send(&Request::AllocPd, &fds).unwrap();
        assert_eq!(daemon.is_of_authority().unwrap(), is_one, "{descriptors}");
        // The message is still there, with what is beside it.
        let (first, fds) = daemon.recv::<Request>().unwrap().unwrap();
        assert_eq!((first, fds.len()), (Request::AllocPd, descriptors));
    }
    // Who claims nothing has none.
    let (other, end) = Channel::pair().unwrap();
    drop(other);
    assert!(!end.is_of_authority().unwrap());
}
