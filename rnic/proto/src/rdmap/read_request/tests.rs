use super::{LEN, ReadRequest};
use crate::{Stag, TaggedOffset};

#[test]
fn the_fields_are_where_figure_6_has_them() {
    let bytes: [u8; LEN] = std::array::from_fn(|n| n as u8);
    let request = ReadRequest::from_bytes(&bytes);
    assert_eq!(
        request,
        ReadRequest {
            sink_stag: Stag(0x0001_0203),
            sink_to: TaggedOffset(0x0405_0607_0809_0a0b),
            size: 0x0c0d_0e0f,
            source_stag: Stag(0x1011_1213),
            source_to: TaggedOffset(0x1415_1617_1819_1a1b),
        }
    );
    assert_eq!(request.to_bytes(), bytes);
}
