use std::error::Error as _;
use std::io;

use rnic_ipc::control::{DisconnectReason, RefusalCode};

use super::*;

/// What a report of the whole chain shows, as that of `anyhow`: each text, from the error to its first cause.
fn chain(error: &Error) -> Vec<String> {
    let mut texts = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        texts.push(error.to_string());
        cause = error.source();
    }
    texts
}

#[test]
fn no_error_says_twice_what_is_wrong() {
    let refusal = || Refusal {
        code: RefusalCode::Limit,
        message: "its limit of 4 queue pairs".to_owned(),
    };
    let errno = Errno::NOMEM;
    let reason = DisconnectReason::TerminateReceived { control: 0x1202 };
    let message = "198.18.0.2:7471 sent Terminate 0x1202".to_owned();
    for error in [
        Error::from(refusal()),
        Error::SessionEnded(refusal()),
        Error::Address(io::Error::other("no such host")),
        Error::ConnectFailed {
            reason,
            message: message.clone(),
        },
        Error::Disconnected { reason, message },
        Error::from(TransportError::Host {
            call: "recvmsg(2)",
            errno,
        }),
        Error::Io {
            call: "poll(2)",
            errno,
        },
    ] {
        let texts = chain(&error);
        for (at, text) in texts.iter().enumerate() {
            let others = texts.iter().enumerate().filter(|(other, _)| *other != at);
            for (_, other) in others {
                assert!(
                    !other.contains(text.as_str()),
                    "{text:?} is in {other:?} too"
                );
            }
        }
    }
}

#[test]
fn the_reason_for_programs_is_not_in_the_text_for_people() {
    let error = Error::Disconnected {
        reason: DisconnectReason::TerminateReceived { control: 0x1202 },
        message: "198.18.0.2:7471 sent Terminate 0x1202".to_owned(),
    };
    assert_eq!(
        error.to_string(),
        "the connection ended: 198.18.0.2:7471 sent Terminate 0x1202"
    );
}

#[test]
fn what_main_prints_of_an_error_is_the_sentence() {
    let error = Error::TooManySges { found: 3, max: 2 };
    assert_eq!(format!("{error:?}"), error.to_string());
    let work = WorkError {
        wr_id: 7,
        qp: rnic_ipc::id::QpNum(3),
        opcode: rnic_ipc::work::WrOpcode::Send,
        status: rnic_ipc::work::WcStatus::RemoteAccess,
    };
    assert_eq!(format!("{work:?}"), work.to_string());
    let address = crate::address::AddressError::NoInterface {
        scope: "eth9".to_owned(),
    };
    assert_eq!(format!("{address:?}"), address.to_string());
}
