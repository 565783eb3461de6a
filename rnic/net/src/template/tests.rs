use super::*;
use crate::tests::{path, tuple};

/// Numbers that differ, with the corners of one's complement arithmetic among them.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let number = (self.0 >> 20) as u32;
        match self.0 % 7 {
            0 => 0,
            1 => u32::MAX,
            2 => 0xffff,
            3 => 0xffff_0000,
            _ => number,
        }
    }
}

fn written(path: &Path, tuple: &FourTuple, says: &Differing, payload: Payload) -> Option<Vec<u8>> {
    let header = TcpHeader {
        source_port: tuple.local.port,
        destination_port: tuple.remote.port,
        seq: says.seq,
        ack: says.ack,
        flags: says.flags,
        window: says.window,
        urgent: 0,
        options: Options {
            timestamps: says.timestamps,
            ..Options::default()
        },
    };
    let mut out = vec![0xa5; HEADERS_MAX + 7];
    write_segment(path, tuple, says.ecn, &header, payload, &mut out)?;
    Some(out)
}

#[test]
fn a_template_writes_what_is_written_from_nothing() {
    let mut numbers = Numbers(0x9234_5678_9abc_def1);
    let mut too_long = 0;
    for round in 0..40_000 {
        let (v6, timestamps) = (round % 2 == 0, round % 4 < 2);
        let path = path((round % 8 < 4).then_some(numbers.next() as u16));
        let tuple = tuple(v6);
        let template = HeaderTemplate::new(&path, &tuple, timestamps).unwrap();
        let says = Differing {
            seq: SeqNum(numbers.next()),
            ack: SeqNum(numbers.next()),
            flags: Flags(numbers.next() as u8),
            window: numbers.next() as u16,
            timestamps: timestamps.then(|| Timestamps {
                value: numbers.next(),
                echo: numbers.next(),
            }),
            ecn: [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce][round % 3],
        };
        let len = numbers.next() as usize % (1 << 16);
        let payload = Payload {
            len,
            sum: PartialSum::from_folded(numbers.next() as u16),
        };
        let mut out = vec![0xa5; HEADERS_MAX + 7];
        let Some(expected) = written(&path, &tuple, &says, payload) else {
            assert_eq!(template.write(&says, payload, &mut out), None);
            too_long += 1;
            continue;
        };
        let headers = template.write(&says, payload, &mut out);
        assert_eq!(headers, Some(template.headers_len()));
        assert_eq!(out, expected, "{says:?} {payload:?}");
    }
    assert!(too_long > 20, "{too_long}");
}

#[test]
fn nothing_is_written_where_the_headers_do_not_fit_or_have_another_length() {
    let (path, tuple) = (path(None), tuple(false));
    let template = HeaderTemplate::new(&path, &tuple, true).unwrap();
    let mut says = Differing {
        seq: SeqNum(1),
        ack: SeqNum(2),
        flags: Flags::ACK,
        window: 3,
        timestamps: Some(Timestamps::default()),
        ecn: Ecn::NotEct,
    };
    let mut out = vec![0xa5; template.headers_len()];
    let payload = Payload::default();
    assert!(template.write(&says, payload, &mut out).is_some());
    out.pop();
    assert_eq!(template.write(&says, payload, &mut out), None);
    says.timestamps = None;
    out.resize(HEADERS_MAX, 0);
    assert_eq!(template.write(&says, payload, &mut out), None);
}

#[test]
fn ends_of_different_families_have_no_template() {
    let (v4, v6) = (tuple(false), tuple(true));
    let mixed = FourTuple {
        local: v4.local,
        remote: v6.remote,
    };
    assert!(HeaderTemplate::new(&path(None), &mixed, true).is_none());
}
