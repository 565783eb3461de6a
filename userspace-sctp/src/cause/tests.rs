use std::time::Duration;

use super::{Cause, Causes, Writer};
use crate::tsn::Tsn;

fn written(causes: &[Cause<'_>]) -> Vec<u8> {
    let mut buffer = [0xff; 512];
    let mut writer = Writer::new(&mut buffer);
    for cause in causes {
        writer.put(cause).unwrap();
    }
    let len = writer.finish();
    buffer[..len].to_vec()
}

#[test]
fn every_cause_comes_back_as_it_was_written_and_says_its_number() {
    let all = [
        Cause::InvalidStream(9),
        Cause::MissingParameters(&[0, 7, 0, 5]),
        Cause::StaleCookie(Duration::from_micros(77)),
        Cause::OutOfResource,
        Cause::UnresolvableAddress(b"name"),
        Cause::UnrecognizedChunk(&[0xc1, 0, 0, 4]),
        Cause::InvalidParameter,
        Cause::UnrecognizedParameters(&[0xc0, 0, 0, 4]),
        Cause::NoUserData(Tsn(8)),
        Cause::CookieInShutdown,
        Cause::RestartWithNewAddresses(&[0, 5, 0, 8, 198, 18, 0, 1]),
        Cause::UserInitiated(b"bye"),
        Cause::ProtocolViolation(b""),
    ];
    for (cause, number) in all.into_iter().zip(1..) {
        let bytes = written(&[cause]);
        // Without the padding, which is the chunk's.
        assert_eq!(bytes[2..4], (bytes.len() as u16).to_be_bytes(), "{cause}");
        assert_eq!(bytes[..2], u16::to_be_bytes(number), "{cause}");
        assert!(Causes::new(&bytes).iter().eq([cause]), "{cause}");
        assert!(
            cause.to_string().contains(&format!("(cause {number})")),
            "{cause}"
        );
    }
    assert!(Causes::new(&written(&all)).iter().eq(all));
    assert!(Causes::new(&[0, 99, 0, 4]).iter().eq([Cause::Unknown(99)]));
    assert!(written(&[Cause::Malformed]).is_empty());
}

/// RFC 9260 section 3.3.10.2: the number of missing parameters is before their types.
#[test]
fn missing_parameters_are_counted() {
    let bytes = written(&[Cause::MissingParameters(&[0, 7, 0, 5])]);
    assert_eq!(bytes, [0, 2, 0, 12, 0, 0, 0, 2, 0, 7, 0, 5]);
}

#[test]
fn a_length_that_lies_is_malformed() {
    for bytes in [
        &[0, 1, 0, 4][..],
        &[0, 2, 0, 6, 0, 0],
        &[0, 3, 0, 4],
        &[0, 9, 0, 7, 1, 2, 3],
        &[0, 4, 0, 8],
    ] {
        assert!(
            Causes::new(bytes).iter().eq([Cause::Malformed]),
            "{bytes:?}"
        );
    }
}
