use userspace_sctp::chunk::Chunk;
use userspace_sctp::{Config, Event, State};

use crate::script::{PEERS_TAG, Script, remote};

/// RFC 9260 section 8.5.1, C: the peer has forgotten the association, and sends its own tag back.
#[test]
fn a_shutdown_complete_with_the_peers_own_tag_ends_what_waits_for_it() {
    let (mut script, id) = Script::established(Config::default());
    let cumulative = script.tsn.previous();
    script.peer(&[Chunk::Shutdown { cumulative }]);
    assert_eq!(script.event(), Event::PeerClosed);
    assert_eq!(script.one().only(), Chunk::ShutdownAck);
    assert_eq!(script.state(id), State::ShutdownAckSent);
    script.peer_with(
        PEERS_TAG,
        remote(),
        &[Chunk::ShutdownComplete { reflected: true }],
    );
    assert_eq!(script.event(), Event::Closed);
    assert_eq!(script.stack.info(id), None);
}
