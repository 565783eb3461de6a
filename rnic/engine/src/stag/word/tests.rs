use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use super::*;

fn rights(number: u64) -> Rights {
    Rights {
        access: Access::from_bits(number as u32 & 15),
        base: TaggedOffset(number * 3),
        len: number * 5,
        stream: number
            .is_multiple_of(2)
            .then_some(QpNum((number as u32).wrapping_add(9))),
        part: (!number.is_multiple_of(3)).then_some(Part {
            region: number as u32,
            word: number * 7,
            start: number * 11,
        }),
    }
}

#[test]
fn rights_are_read_as_they_were_written() {
    for number in [0, 1, 2, 3, 4, 77, u64::from(u32::MAX)] {
        let rights = rights(number);
        assert_eq!(Rights::of_fields(rights.to_fields()), rights);
    }
}

#[test]
fn what_one_shard_did_is_news_to_another() {
    let word = StagWord::unbound();
    let [a, b] = [(); 2].map(|()| View::new(word.clone()));
    assert!(a.make_valid(9, &rights(4)));
    assert!(!a.is_behind() && b.is_behind());
    assert!(
        !b.make_valid(10, &rights(5)),
        "it has not seen the last change"
    );
    let WordState::Valid {
        word,
        key,
        rights: found,
    } = b.state()
    else {
        panic!("{:?}", b.state());
    };
    assert_eq!((key, found), (9, rights(4)));
    b.has_seen(word);
    assert!(!b.is_behind() && !a.is_behind());
    b.invalidate();
    assert!(a.is_behind() && !a.is_valid_anywhere());
    let WordState::Invalid { word } = a.state() else {
        panic!("{:?}", a.state());
    };
    a.has_seen(word);
    assert!(a.make_valid(11, &rights(6)) && b.is_behind());
}

#[test]
fn what_is_invalidated_while_it_is_made_valid_stays_invalid() {
    let word = StagWord::unbound();
    let [a, b] = [(); 2].map(|()| View::new(word.clone()));
    assert!(a.begin_change());
    a.write(&rights(4));
    // Whoever takes rights away now has to wait for who may have them in a moment.
    assert!(b.is_valid_anywhere());
    assert_eq!(b.state(), WordState::Changing);
    b.invalidate_all();
    assert!(!b.is_valid_anywhere());
    assert!(!a.end_change(9), "it is told that it came to nothing");
    for view in [&a, &b] {
        let WordState::Invalid { word } = view.state() else {
            panic!("{:?}", view.state());
        };
        view.has_seen(word);
    }
    assert!(!a.had_key(9));
    assert!(a.make_valid(9, &rights(5)) && b.is_valid_anywhere());
}

/// Half of what is read is never of one change and half of another.
#[test]
fn rights_that_change_while_they_are_read_are_not_taken() {
    const READS: u32 = 100_000;
    let word = StagWord::unbound();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (word, over) = (&word, &over);
        for writer in 0..2 {
            scope.spawn(move || {
                let view = View::new(word.clone());
                let mut number = writer;
                while !over.load(Ordering::Relaxed) {
                    if let WordState::Valid { word, .. } | WordState::Invalid { word } =
                        view.state()
                    {
                        view.has_seen(word);
                    }
                    if view.make_valid(number as u8, &rights(number)) && number % 5 == 0 {
                        view.invalidate();
                    }
                    number += 2;
                }
            });
        }
        let view = View::new(word.clone());
        let (mut found, begin) = (0, Instant::now());
        while found < READS && begin.elapsed() < Duration::from_secs(30) {
            if let WordState::Valid {
                key, rights: read, ..
            } = view.state()
            {
                let number = read.base.0 / 3;
                if read != rights(number) || key != number as u8 {
                    over.store(true, Ordering::Relaxed);
                    panic!("{read:?} under {key}");
                }
                found += 1;
            }
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(found, READS);
    });
}
