//! Every kernel that this processor has, against the crate `crc32c` and a sum taken word by word.

use proptest::prelude::*;

use crate::{Checks, Kernel, Words};

const LEN_MAX: usize = 10_000;

fn kernels() -> impl Iterator<Item = Kernel> {
    Kernel::ALL
        .into_iter()
        .filter(|kernel| kernel.is_available())
}

/// Which kernels the other tests have not run: nextest shows what this prints (`.config/nextest.toml`).
#[test]
fn kernels_that_this_processor_lacks_are_named() {
    let lacks: Vec<_> = Kernel::ALL
        .into_iter()
        .filter(|kernel| !kernel.is_available())
        .map(Kernel::name)
        .collect();
    assert!(kernels().any(|kernel| kernel == Kernel::Portable));
    match lacks.is_empty() {
        true => println!("all CRC kernels were tested"),
        false => println!(
            "NOT TESTED, this processor lacks them: {}",
            lacks.join(", ")
        ),
    }
}

fn bytes(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// RFC 1071 section 1, to the letter.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([pair[0], low]))
    });
    words.fold(0, |sum, word| {
        let sum = sum + word;
        (sum & 0xffff) + (sum >> 16)
    }) as u16
}

#[test]
fn known_values() {
    // RFC 3720 appendix B.4.
    let counted: Vec<u8> = (0..32).collect();
    for kernel in kernels() {
        assert_eq!(kernel.append(0, &[0; 32]), 0x8a91_36aa, "{kernel:?}");
        assert_eq!(kernel.append(0, &[0xff; 32]), 0x62a8_ab43, "{kernel:?}");
        assert_eq!(kernel.append(0, &counted), 0x46dd_794e, "{kernel:?}");
        assert_eq!(kernel.append(7, &[]), 7, "{kernel:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore)]
fn every_length_at_every_alignment() {
    let all = bytes(LEN_MAX + 64);
    let mut place = vec![0; LEN_MAX + 64];
    for len in 0..=LEN_MAX {
        // All alignments of the short ones; of the others one each, all in turn.
        let shifts = if len < 700 {
            0..64
        } else {
            len % 64..len % 64 + 1
        };
        for shift in shifts {
            let from = &all[shift..shift + len];
            let crc = crc32c::crc32c_append(0x1234_5678, from);
            for kernel in kernels() {
                assert_eq!(
                    kernel.append(0x1234_5678, from),
                    crc,
                    "{kernel:?} {len}+{shift}"
                );
            }
            let expected = Checks {
                crc,
                sum: sum(from),
            };
            assert_eq!(crate::sum(from), expected.sum, "{len}+{shift}");
            for kernel in kernels() {
                let found = kernel.check(0x1234_5678, from);
                assert_eq!(found, expected, "{kernel:?} {len}+{shift}");
            }
            if shift % 16 == len % 16 {
                for kernel in kernels() {
                    let to = &mut place[63 - shift..][..len];
                    to.fill(0);
                    let found = kernel.copy(0x1234_5678, from, to);
                    assert_eq!(found, expected, "{kernel:?} {len}+{shift}");
                    assert!(to == from, "{kernel:?} {len}+{shift}");
                }
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore)]
fn every_alignment_of_long_ones() {
    let all = bytes(LEN_MAX + 64);
    for len in [1460, 3440, 4096, 8960, LEN_MAX] {
        for shift in 0..64 {
            let from = &all[shift..shift + len];
            let crc = crc32c::crc32c(from);
            for kernel in kernels() {
                assert_eq!(kernel.append(0, from), crc, "{kernel:?} {len}+{shift}");
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore)]
fn nothing_beside_the_copy_is_touched() {
    let from = bytes(700);
    for kernel in kernels() {
        for len in 0..700 {
            let mut place = [0xa5; 900];
            kernel.copy(0, &from[..len], &mut place[100..]);
            assert!(
                place[..100].iter().all(|&byte| byte == 0xa5),
                "{kernel:?} {len}"
            );
            assert!(
                place[100 + len..].iter().all(|&byte| byte == 0xa5),
                "{kernel:?} {len}"
            );
        }
    }
}

/// Few enough for Miri, which has the instructions that this processor may lack.
#[test]
fn where_a_kernel_takes_another_way() {
    let from = bytes(1460);
    let mut to = vec![0; 1460];
    for len in [
        0, 1, 7, 15, 16, 63, 64, 65, 511, 512, 575, 576, 767, 768, 1030, 1460,
    ] {
        for kernel in kernels() {
            let expected = Checks {
                crc: crc32c::crc32c(&from[..len]),
                sum: sum(&from[..len]),
            };
            assert_eq!(
                kernel.append(0, &from[..len]),
                expected.crc,
                "{kernel:?} {len}"
            );
            assert_eq!(
                kernel.copy(0, &from[..len], &mut to),
                expected,
                "{kernel:?} {len}"
            );
            assert!(to[..len] == from[..len], "{kernel:?} {len}");
        }
    }
}

#[test]
fn a_copy_is_as_long_as_the_shorter_side() {
    let from = bytes(100);
    let mut to = [0; 40];
    let checks = crate::copy(0, &from, &mut to);
    assert_eq!(to, from[..40]);
    assert_eq!(checks.crc, crc32c::crc32c(&to));
}

#[test]
#[cfg_attr(miri, ignore)]
fn sums_of_extremes() {
    for kernel in kernels() {
        for len in [2, 4, 100, 1460, 65_536] {
            let mut to = vec![1; len];
            assert_eq!(kernel.copy(0, &vec![0; len], &mut to).sum, 0, "{kernel:?}");
            assert_eq!(
                kernel.copy(0, &vec![0xff; len], &mut to).sum,
                0xffff,
                "{kernel:?}"
            );
        }
    }
}

/// So many bytes with words among them, one byte after the other.
fn among(
    from: &[u8],
    len: usize,
    (first, every): (usize, usize),
    value: u32,
    step: u32,
) -> Vec<u8> {
    let mut from = from.iter();
    let byte = |at: usize| {
        let behind = at.checked_sub(first)?;
        let times = (behind / every) as u32;
        let word = value.wrapping_add(step.wrapping_mul(times)).to_be_bytes();
        word.get(behind % every).copied()
    };
    (0..len)
        .map(|at| byte(at).unwrap_or_else(|| *from.next().unwrap()))
        .collect()
}

fn look_among(from: &[u8], len: usize, (first, every): (usize, usize)) {
    let (value, step) = (0xfedc_ba98, 0x0102_0304);
    let words = Words::new(first, every, value, step);
    let expected = among(from, len, (first, every), value, step);
    let checks = Checks {
        crc: crc32c::crc32c_append(7, &expected),
        sum: sum(&expected),
    };
    // Not one byte more is there to be read.
    let from = from[..words.bytes_of(len)].to_vec();
    for kernel in kernels() {
        let mut place = vec![0xa5; len + 128];
        let to = &mut place[64..64 + len];
        let found = kernel.copy_among(7, &from, to, words);
        assert!(to == expected, "{kernel:?} {len} {words:?}");
        assert_eq!(found, checks, "{kernel:?} {len} {words:?}");
        place.drain(64..64 + len);
        assert!(place.iter().all(|&byte| byte == 0xa5), "{kernel:?} {len}");
    }
}

#[test]
#[cfg_attr(miri, ignore)]
fn words_among_bytes_wherever_they_fall() {
    let from = bytes(4000);
    for first in 0..=600 {
        for len in [first, first + 1, first + 4, 1416, 1419, 3404] {
            look_among(&from, len, (first, 512));
        }
    }
    for every in [4, 8, 32, 64, 128] {
        for len in 0..300 {
            look_among(&from, len, (len % 70, every));
            look_among(&from, len, (len % 64 / 4 * 4, every));
        }
    }
    look_among(&from, 700, (usize::MAX, 512));
}

/// Few enough for Miri: in what is ahead of vectors, at both ends of a vector, and at the end of all.
#[test]
fn words_where_a_kernel_takes_another_way() {
    let from = bytes(800);
    for (len, first) in [
        (600, 0),
        (600, 20),
        (600, 24),
        (600, 84),
        (640, 636),
        (602, 40),
        (40, 4),
    ] {
        look_among(&from, len, (first, 512));
    }
}

proptest! {
    #[test]
    #[cfg_attr(miri, ignore)]
    fn pieces_make_the_whole(
        content in prop::collection::vec(any::<u8>(), 0..3000),
        cuts in prop::collection::vec(0_usize..3000, 0..5),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (content.len() + 1)).collect();
        cuts.extend([0, content.len()]);
        cuts.sort_unstable();
        for kernel in kernels() {
            let mut place = vec![0; content.len()];
            let mut crc = 0;
            for pair in cuts.windows(2) {
                crc = kernel.copy(crc, &content[pair[0]..pair[1]], &mut place[pair[0]..pair[1]]).crc;
            }
            prop_assert_eq!(crc, crc32c::crc32c(&content));
            prop_assert_eq!(&place, &content);
        }
    }
}

/// Nothing in it touches memory.
#[test]
#[cfg_attr(miri, ignore)]
fn words_by_their_values_as_their_bytes() {
    fn look<const N: usize>(bytes: &[u8]) {
        let words: [u32; N] = std::array::from_fn(|at| {
            let at = 4 * at;
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        });
        let bytes = &bytes[..4 * N];
        for crc in [0, 0x1234_5678, u32::MAX] {
            let expected = Checks {
                crc: crc32c::crc32c_append(crc, bytes),
                sum: sum(bytes),
            };
            for kernel in kernels() {
                assert_eq!(kernel.check_words(crc, words), expected, "{kernel:?} {N}");
            }
        }
    }
    let all = bytes(64 + 200);
    for from in 0..200 {
        look::<0>(&all[from..]);
        look::<1>(&all[from..]);
        look::<4>(&all[from..]);
        look::<5>(&all[from..]);
    }
    look::<5>(&[0; 20]);
    look::<5>(&[0xff; 20]);
}
