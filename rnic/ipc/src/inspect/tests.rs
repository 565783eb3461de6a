use super::*;
use crate::control::{Reply, Response};
use crate::transport::Channel;

/// As long as a client can be in a message.
fn client(number: u32) -> (u32, Object) {
    let holding = |index| Holding {
        name: format!("a_limit_of_some_length_{index}"),
        held: u64::MAX,
        limit: u64::MAX,
    };
    let info = ClientInfo {
        client: ClientId(number),
        pid: u32::MAX,
        uid: u32::MAX,
        gid: u32::MAX,
        program: "m".repeat(64),
        holds: (0..12).map(holding).collect(),
        refused: u64::MAX,
    };
    (number, Object::Client(info))
}

#[test]
fn pages_together_are_all_objects_once_and_each_fits_a_message() {
    let (ours, theirs) = Channel::pair().unwrap();
    let all: Vec<_> = (1..=100).map(client).collect();
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        let rest = all.iter().filter(|(number, _)| *number > after).cloned();
        let page = Page::of(rest, None);
        let reply: Reply = Ok(Response::Inspected(page.clone()));
        ours.send(&reply, &[]).unwrap();
        assert_eq!(theirs.recv::<Reply>().unwrap().unwrap().0, reply);
        found.extend(page.objects);
        match page.next {
            Some(next) => {
                assert!(next > after);
                after = next;
            }
            None => break,
        }
    }
    let all: Vec<_> = all.into_iter().map(|(_, object)| object).collect();
    assert_eq!(found, all);
}

#[test]
fn a_page_that_fits_goes_on_where_the_look_ended() {
    let page = Page::of([client(3)], Some(1000));
    assert_eq!((page.objects.len(), page.next), (1, Some(1000)));
}
