use std::net::IpAddr;
use std::time::Duration;

use super::{ADAPTATION_DDP, Parameter, Parameters, Writer};
use crate::chunk::Report;

fn written(parameters: &[Parameter<'_>]) -> Vec<u8> {
    let mut buffer = [0xff; 512];
    let mut writer = Writer::new(&mut buffer);
    for parameter in parameters {
        writer.put(parameter).unwrap();
    }
    let len = writer.finish();
    buffer[..len].to_vec()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn every_parameter_comes_back_as_it_was_written() {
    let all = [
        Parameter::HeartbeatInfo(b"12345"),
        Parameter::Address(address("198.18.0.1")),
        Parameter::Address(address("2001:db8::1")),
        Parameter::StateCookie(b"cookie"),
        Parameter::Unrecognized(&[0xc0, 0, 0, 4]),
        Parameter::CookiePreservative(Duration::from_millis(70_000)),
        Parameter::AddressTypes {
            v4: true,
            v6: false,
        },
        Parameter::AddressTypes { v4: true, v6: true },
        Parameter::AddressTypes {
            v4: false,
            v6: true,
        },
        Parameter::Adaptation(ADAPTATION_DDP),
        Parameter::Unknown {
            report: Report::Skip,
            whole: &[0x80, 8, 0, 6, 1, 2],
        },
    ];
    for parameter in all {
        let bytes = written(&[parameter]);
        // Without the padding, which is the chunk's.
        assert_eq!(
            bytes[2..4],
            (bytes.len() as u16).to_be_bytes(),
            "{parameter:?}"
        );
        assert!(Parameters::new(&bytes).iter().eq([parameter]));
    }
    assert!(Parameters::new(&written(&all)).iter().eq(all));
}

/// RFC 5043 section 5.1: parameter 0xC006 of 8 bytes with the value 1.
#[test]
fn the_indication_of_ddp_is_laid_out_as_the_rfc_says() {
    let bytes = written(&[Parameter::Adaptation(ADAPTATION_DDP)]);
    assert_eq!(bytes, [0xc0, 6, 0, 8, 0, 0, 0, 1]);
}

/// RFC 9260 section 3.2.1.
#[test]
fn the_highest_bits_of_an_unknown_parameter_say_whether_the_rest_is_read() {
    for (first, report, goes_on) in [
        (0x3f, Report::Stop, false),
        (0x40, Report::StopAndReport, false),
        (0x80, Report::Skip, true),
        (0xc0, Report::SkipAndReport, true),
    ] {
        let unknown = [first, 0xff, 0, 4];
        let bytes = [&unknown[..], &[0xc0, 6, 0, 8, 0, 0, 0, 1]].concat();
        let mut parameters = Parameters::new(&bytes).iter();
        assert_eq!(
            parameters.next(),
            Some(Parameter::Unknown {
                report,
                whole: &unknown
            })
        );
        let next = goes_on.then_some(Parameter::Adaptation(1));
        assert_eq!(parameters.next(), next, "{first:#x}");
    }
}

#[test]
fn a_length_that_lies_is_malformed_and_the_last_thing_that_is_read() {
    for bytes in [
        &[0, 5, 0, 7, 198, 18, 0, 0][..],
        &[0, 5, 0, 12, 198, 18, 0, 1, 0, 0, 0, 0],
        &[0, 6, 0, 8, 1, 2, 3, 4],
        &[0, 9, 0, 4],
        &[0xc0, 6, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0],
        &[0, 7, 0, 3],
        &[0, 7, 0, 9, 1, 2, 3, 4],
        &[0, 7, 0],
    ] {
        let bytes = [bytes, &[0; 3], &written(&[Parameter::Adaptation(1)])].concat();
        let mut parameters = Parameters::new(&bytes).iter();
        let found: Vec<_> = parameters.by_ref().take(9).collect();
        let malformed = found.iter().position(|p| *p == Parameter::Malformed);
        assert_eq!(malformed, found.len().checked_sub(1), "{found:?}");
        assert_eq!(parameters.next(), None);
    }
}

#[test]
fn a_host_name_is_known_so_that_it_can_be_refused_and_is_never_written() {
    let bytes = [0, 11, 0, 8, b'a', b'b', b'c', 0];
    assert!(
        Parameters::new(&bytes)
            .iter()
            .eq([Parameter::HostName(&bytes)])
    );
    assert!(written(&[Parameter::HostName(&bytes), Parameter::Malformed]).is_empty());
}
