//! The table's part of RFC 7306: Immediate Data and Atomic Operations.

use super::*;

const IMMEDIATE: u8 = 0x48;
const IMMEDIATE_SOLICITED: u8 = 0x49;
const ATOMIC_REQUEST: u8 = 0x4a;
const ATOMIC_RESPONSE: u8 = 0x4b;

const FETCH_ADD: u32 = 0;
const COMPARE_SWAP: u32 = 2;

/// An Atomic Request header: code, identifier, target, and operands that would change it.
fn header(code: u32, target: (u32, u64)) -> Vec<u8> {
    let mut out = code.to_be_bytes().to_vec();
    out.extend(77_u32.to_be_bytes());
    out.extend(target.0.to_be_bytes());
    out.extend(target.1.to_be_bytes());
    out.extend(u64::MAX.to_be_bytes());
    out.extend([0xff; 8]);
    out.extend([0; 16]);
    out
}

fn atomic(msn: u32, code: u32, target: (u32, u64)) -> Vec<u8> {
    let header = header(code, target);
    untagged(UNTAGGED | LAST, ATOMIC_REQUEST, [1, msn, 0], &header)
}

pub fn cases(side: &Side) -> Vec<Case> {
    let (narrow, end) = (BASE + PLACES[2] as u64, BASE + (PLACES[2] + SMALL) as u64);
    let (bare, foreign) = (BASE + PLACES[0] as u64, BASE + PLACES[1] as u64);
    let to = |code, stag, to| atomic(1, code, (stag, to));
    let fine = header(FETCH_ADD, (NARROW, narrow));
    let on = |rdmap, place, payload: &[u8]| untagged(UNTAGGED | LAST, rdmap, place, payload);
    let atomics = (1..=u32::from(IRD)).map(|msn| atomic(msn, FETCH_ADD, (NARROW, narrow)));
    let mut all = vec![
        case(
            "an Atomic on nobody's STag",
            0x0100,
            to(FETCH_ADD, UNKNOWN, narrow),
        ),
        case(
            "an Atomic with a wrong key",
            0x0100,
            to(FETCH_ADD, side.stag.0 ^ 1, narrow),
        ),
        case(
            "an Atomic before",
            0x0101,
            to(COMPARE_SWAP, NARROW, narrow - 8),
        ),
        case("an Atomic behind", 0x0101, to(FETCH_ADD, NARROW, end)),
        case(
            "an Atomic without the right",
            0x0102,
            to(FETCH_ADD, BARE, bare),
        ),
        case(
            "an Atomic of another domain",
            0x0103,
            to(COMPARE_SWAP, FOREIGN, foreign),
        ),
        case(
            "an Atomic that wraps",
            0x0104,
            to(FETCH_ADD, NARROW, u64::MAX - 6),
        ),
        case(
            "an operation that is reserved",
            0x0206,
            to(1, NARROW, narrow),
        ),
        case(
            "an operation that is not assigned",
            0x0206,
            to(3, NARROW, narrow),
        ),
        behind(
            atomics.collect(),
            case(
                "an Atomic behind as many as there may be",
                0x1202,
                atomic(u32::from(IRD) + 1, FETCH_ADD, (NARROW, narrow)),
            ),
        ),
        case(
            "51 bytes of an Atomic",
            0x02ff,
            on(ATOMIC_REQUEST, [1, 1, 0], &fine[..51]),
        ),
        case(
            "53 bytes of an Atomic",
            0x1205,
            on(ATOMIC_REQUEST, [1, 1, 0], &[&fine[..], &[0]].concat()),
        ),
        case(
            "an Atomic on queue 0",
            0x0206,
            on(ATOMIC_REQUEST, [0, 1, 0], &fine),
        ),
        case(
            "an original value that nobody asked for",
            0x1202,
            on(ATOMIC_RESPONSE, [3, 1, 0], &[0; 12]),
        ),
        case(
            "an original value on queue 0",
            0x0206,
            on(ATOMIC_RESPONSE, [0, 1, 0], &[0; 12]),
        ),
        case(
            "seven bytes of Immediate Data",
            0x02ff,
            on(IMMEDIATE, [0, 1, 0], &[0; 7]),
        ),
        case(
            "nine bytes",
            0x02ff,
            on(IMMEDIATE_SOLICITED, [0, 1, 0], &[0; 9]),
        ),
        case(
            "Immediate Data on queue 1",
            0x0206,
            on(IMMEDIATE, [1, 1, 0], &[0; 8]),
        ),
        case(
            "Immediate Data, tagged",
            0x0206,
            tagged(0xc1, IMMEDIATE, NARROW, narrow, &[0; 8]),
        ),
        behind(
            vec![on(IMMEDIATE, [0, 1, 0], &[0; 8])],
            case(
                "Immediate Data without a receive",
                0x1202,
                on(IMMEDIATE, [0, 2, 0], &[0; 8]),
            ),
        ),
    ];
    all.extend((1..8).map(|off| {
        let code = [FETCH_ADD, COMPARE_SWAP][off as usize % 2];
        case(
            "an Atomic that is not aligned",
            0x0207,
            to(code, NARROW, narrow + off),
        )
    }));
    all
}
