use super::{MarkerUse, MpaOptions};

/// RFC 5044 section 4.4: CRCs are the default of a connection; Markers cost more than they give on a
/// link that loses nothing.
#[test]
fn a_connection_asks_for_crcs_unless_told() {
    let options = MpaOptions::default();
    assert!(options.crc);
    assert_eq!(options.markers, MarkerUse::Off);
    assert_eq!(options.revision, 2);
}
