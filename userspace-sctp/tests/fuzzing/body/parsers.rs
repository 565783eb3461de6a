//! Bytes as a packet, as parameters and as a State Cookie.

use std::net::SocketAddr;
use std::time::Duration;

use userspace_net::Instant;
use userspace_sctp::cause::{self, Cause, Causes};
use userspace_sctp::chunk::Chunk;
use userspace_sctp::cookie::{Secret, State, Tags};
use userspace_sctp::packet::{Packet, Writer, verify};
use userspace_sctp::parameter::{self, Parameter, Parameters};
use userspace_sctp::{Config, Others, Stack, Tsn};

use super::input::Input;

/// Bytes of the network. What is read can be written, and reads the same again.
pub fn packet(bytes: &[u8]) {
    let _ = verify(bytes);
    let Ok(packet) = Packet::parse(bytes) else {
        return;
    };
    let chunks: Vec<_> = packet.chunks().collect();
    assert!(chunks.len() * 4 <= bytes.len());
    for chunk in &chunks {
        match chunk {
            Chunk::Init(init) | Chunk::InitAck(init) => {
                let _ = init.check();
                read_parameters(init.parameters.bytes());
            }
            Chunk::Sack(sack) => {
                assert!(4 * (sack.blocks().count() + sack.duplicates().count()) <= bytes.len());
            }
            Chunk::Abort { causes, .. } | Chunk::Error(causes) => read_causes(*causes),
            _ => {}
        }
    }
    let mut again = vec![0; bytes.len() + 16];
    let mut writer = Writer::new(&mut again, packet.header).expect("there is room");
    for chunk in &chunks {
        writer.chunk(chunk).expect("it is no longer than it was");
    }
    let len = writer.finish();
    assert_eq!(verify(&again[..len]), Ok(()));
    if let Ok(read) = Packet::parse(&again[..len]) {
        assert_eq!(read.header, packet.header);
        assert!(read.chunks().eq(chunks), "written again it differs");
    } else {
        assert!(chunks.is_empty());
    }
}

fn read_causes(causes: Causes<'_>) {
    let mut again = vec![0; 2 * causes.bytes().len() + 16];
    let mut writer = cause::Writer::new(&mut again);
    let good = |cause: &Cause<'_>| *cause != Cause::Malformed;
    for cause in causes.iter() {
        assert!(!cause.to_string().is_empty());
        writer.put(&cause).expect("there is room");
    }
    let len = writer.finish();
    let again = Causes::new(&again[..len]);
    assert!(again.iter().eq(causes.iter().filter(good)));
}

/// Bytes of an INIT's parameters. A listener that gets them answers with one packet at most, and keeps nothing.
pub fn parameters(bytes: &[u8]) {
    read_parameters(bytes);
    let (local, remote) = ends();
    let mut stack = Stack::<Vec<u8>>::new(Config::default(), [1; 16], Instant::ZERO);
    stack.listen(local).expect("nobody listens");
    let fixed = [0, 0, 0, 9, 0, 0, 64, 0, 0, 1, 0, 1, 0, 0, 0, 5];
    let init = [&fixed, bytes].concat();
    let init = super::chunk(1, 0, (4 + init.len()) as u16, &init);
    let init = super::packet(remote.port(), local.port(), 0, &init);
    let (to, from) = (local.ip(), remote.ip());
    stack.receive(Instant::ZERO, to, from, None, &init, |_, _| unreachable!());
    let mut out = [0; 1500];
    if let Some(sent) = stack.poll_transmit(Instant::ZERO, &mut out) {
        assert_eq!((sent.ends.local, sent.ends.remote), (local, remote));
        assert_eq!(verify(&out[..sent.len]), Ok(()));
        let answer = Packet::parse(&out[..sent.len]).expect("what we write can be read");
        assert_eq!(answer.header.tag, 9);
        assert!(matches!(
            answer.chunks().next(),
            Some(Chunk::InitAck(_) | Chunk::Abort { .. })
        ));
    }
    assert_eq!(stack.poll_transmit(Instant::ZERO, &mut out), None);
    assert_eq!(stack.associations().count(), 0);
    assert_eq!(stack.poll_event(), None);
}

fn read_parameters(bytes: &[u8]) {
    let parameters = Parameters::new(bytes);
    let mut again = vec![0; 2 * bytes.len() + 16];
    let mut writer = parameter::Writer::new(&mut again);
    for parameter in parameters.iter() {
        writer.put(&parameter).expect("there is room");
    }
    let len = writer.finish();
    let again = Parameters::new(&again[..len]);
    // These are never written.
    let is_written =
        |of: &Parameter<'_>| !matches!(of, Parameter::HostName(_) | Parameter::Malformed);
    assert!(again.iter().eq(parameters.iter().filter(is_written)));
}

/// A cookie that the input changes, or bytes of the input alone: only one that is as it was made is accepted, from
/// whom it was made for, and only while its secret is known.
pub fn cookie(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (local, remote) = ends();
    let state = State {
        made: Instant::from_nanos(input.word().into()),
        lifespan: Duration::from_millis(input.short().into()),
        local,
        remote,
        others: Others::default(),
        tags: Tags {
            local: input.word().max(1),
            remote: input.word().max(1),
        },
        tie: None,
        local_tsn: Tsn(input.word()),
        remote_tsn: Tsn(input.word()),
        window: input.word(),
        outbound_streams: input.short(),
        inbound_streams: input.short(),
        adaptation: None,
    };
    let now = state.made + Duration::from_millis(input.short().into());
    let secret = Secret::new([1; 16]);
    let made = secret.bake(&state);
    let read = |secret: &Secret, bytes: &[u8]| secret.check(bytes, now, local, remote);
    assert_eq!(read(&secret, &made).map(|back| back.state), Ok(state));
    assert!(secret.check(&made, now, remote, local).is_err());
    assert!(read(&Secret::new([2; 16]), &made).is_err());
    let mut changed = made.to_vec();
    for _ in 0..input.below(5) {
        let at = input.below(changed.len());
        changed[at] ^= input.byte();
    }
    changed.truncate(made.len() - input.below(256).saturating_sub(200).min(made.len()));
    let longer = input.below(4);
    changed.extend_from_slice(input.take(longer));
    assert_eq!(read(&secret, &changed).is_ok(), changed == made);
    assert!(read(&secret, bytes).is_err());
    let much_later = now + Duration::from_secs(3 * 3600);
    assert!(secret.check(&made, much_later, local, remote).is_err());
}

fn ends() -> (SocketAddr, SocketAddr) {
    (
        ([198, 18, 0, 1], 5000).into(),
        ([198, 18, 0, 2], 5001).into(),
    )
}
