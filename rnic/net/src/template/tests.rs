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

fn written(
    path: &Path,
    tuple: &FourTuple,
    seq: SeqNum,
    says: &VariableFields,
    payload: Payload,
) -> Option<Vec<u8>> {
    let header = TcpHeader {
        source_port: tuple.local.port,
        destination_port: tuple.remote.port,
        seq,
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
    for round in 0..10_000 {
        let (v6, timestamps) = (round % 2 == 0, round % 4 < 2);
        let path = path((round % 8 < 4).then_some(numbers.next() as u16));
        let mut tuple = tuple(v6);
        let mut template = HeaderTemplate::new(&path, &tuple, timestamps).unwrap();
        // Nothing of what was set before is left, nor of the ports of another connection.
        for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
            if ecn != Ecn::NotEct {
                tuple.local.port = numbers.next() as u16;
                tuple.remote.port = numbers.next() as u16;
                template.set_ports(&tuple);
            }
            let says = VariableFields {
                ack: SeqNum(numbers.next()),
                flags: Flags(numbers.next() as u8),
                window: numbers.next() as u16,
                timestamps: timestamps.then(|| Timestamps {
                    value: numbers.next(),
                    echo: numbers.next(),
                }),
                ecn,
            };
            let len = numbers.next() as usize % (1 << 16);
            let set = template.set(&says, len);
            for _ in 0..3 {
                let seq = SeqNum(numbers.next());
                let sum = PartialSum::from_folded(numbers.next() as u16);
                let payload = Payload { len, sum };
                let expected = written(&path, &tuple, seq, &says, payload);
                assert_eq!(set.is_some(), expected.is_some(), "{says:?} {len}");
                let Some(expected) = expected else {
                    too_long += 1;
                    continue;
                };
                let mut out = vec![0xa5; HEADERS_MAX + 7];
                let headers = template.write(seq, sum, &mut out);
                assert_eq!(headers, Some(template.headers_len()));
                assert_eq!(out, expected, "{seq:?} {says:?} {payload:?}");
            }
        }
    }
    assert!(too_long > 20, "{too_long}");
}

#[test]
fn nothing_is_written_where_the_headers_do_not_fit_or_have_another_length() {
    let (path, tuple) = (path(None), tuple(false));
    let mut template = HeaderTemplate::new(&path, &tuple, true).unwrap();
    let mut says = VariableFields {
        ack: SeqNum(2),
        flags: Flags::ACK,
        window: 3,
        timestamps: Some(Timestamps::default()),
        ecn: Ecn::NotEct,
    };
    let mut out = vec![0xa5; template.headers_len()];
    let (seq, sum) = (SeqNum(1), PartialSum::ZERO);
    assert!(template.set(&says, 0).is_some());
    assert!(template.write(seq, sum, &mut out).is_some());
    out.pop();
    assert_eq!(template.write(seq, sum, &mut out), None);
    says.timestamps = None;
    assert_eq!(template.set(&says, 0), None);
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
