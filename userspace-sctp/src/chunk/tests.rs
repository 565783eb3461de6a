use super::{Init, InitError, RWND_MIN};
use crate::parameter::Parameters;
use crate::tsn::Tsn;

const INIT: Init<'static> = Init {
    tag: 1,
    window: RWND_MIN,
    outbound_streams: 1,
    inbound_streams: 1,
    initial_tsn: Tsn(0),
    parameters: Parameters::new(&[]),
};

/// RFC 9260 sections 3.3.2 and 3.3.3.
#[test]
fn an_init_needs_a_tag_a_window_and_streams() {
    assert_eq!(INIT.check(), Ok(()));
    let window = RWND_MIN - 1;
    for (init, error) in [
        (Init { tag: 0, ..INIT }, InitError::TagZero),
        (
            Init { window, ..INIT },
            InitError::WindowTooSmall { window },
        ),
        (
            Init {
                outbound_streams: 0,
                ..INIT
            },
            InitError::NoStreams,
        ),
        (
            Init {
                inbound_streams: 0,
                ..INIT
            },
            InitError::NoStreams,
        ),
    ] {
        assert_eq!(init.check(), Err(error));
    }
}
