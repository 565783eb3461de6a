use std::sync::atomic::AtomicBool;
use std::thread;

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
fn there_are_news_where_another_shard_made_it_valid_and_not_where_it_was_done() {
    let word = StagWord::unbound();
    let [a, b] = [(); 2].map(|()| View::new(word.clone()));
    assert_eq!(b.news(), None);
    assert!(a.make_valid(9, &rights(4)));
    assert_eq!(a.news(), None);
    assert!(!a.is_behind() && b.is_behind() && b.is_valid_elsewhere());
    let (word, key, found) = b.news().unwrap();
    assert_eq!((key, found), (9, rights(4)));
    b.has_seen(word);
    assert!(!b.is_behind() && !a.is_behind());
    b.invalidate();
    assert!(a.is_behind() && !a.is_valid_anywhere());
    assert_eq!(a.news(), None);
}

/// Half of what is read is never of one change and half of another.
#[test]
fn rights_that_change_while_they_are_read_are_not_taken() {
    let word = StagWord::unbound();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (word, over) = (&word, &over);
        for writer in 0..2 {
            scope.spawn(move || {
                let view = View::new(word.clone());
                for number in 0..100_000_u64 {
                    let number = 2 * number + writer;
                    if view.make_valid(number as u8, &rights(number)) && number % 5 == 0 {
                        view.invalidate();
                    }
                }
                over.store(true, Ordering::Relaxed);
            });
        }
        let view = View::new(word.clone());
        let mut found = 0;
        while !over.load(Ordering::Relaxed) {
            if let Some((seen, key, read)) = view.news() {
                let number = read.base.0 / 3;
                assert_eq!(read, rights(number));
                assert_eq!(key, number as u8);
                view.has_seen(seen);
                found += 1;
            }
        }
        assert!(found > 0);
    });
}
