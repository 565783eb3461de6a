use super::{RdmapError, TerminateError};
use crate::ddp::DdpError;
use crate::mpa::MpaError;

#[test]
fn control_bits_are_those_of_the_rfcs() {
    let cases: [(TerminateError, u16); 8] = [
        (RdmapError::InvalidStag.into(), 0x0100),
        (RdmapError::CannotInvalidate.into(), 0x0109),
        (RdmapError::UnexpectedOpcode.into(), 0x0206),
        (RdmapError::OperationUnspecified.into(), 0x02ff),
        (DdpError::BaseOrBounds.into(), 0x1101),
        (DdpError::UntaggedVersion.into(), 0x1206),
        (MpaError::CrcMismatch.into(), 0x2002),
        (MpaError::NoMatchingRtr.into(), 0x2007),
    ];
    for (error, control) in cases {
        assert_eq!(error.control(), control, "{error}");
        assert_eq!(TerminateError::from_control(control), error);
    }
}

#[test]
fn all_numbers_survive_the_way_there_and_back() {
    for control in 0..=u16::MAX {
        let error = TerminateError::from_control(control);
        let local_catastrophic = control & 0xff00 == 0 || control & 0xff00 == 0x1000;
        if !local_catastrophic {
            assert_eq!(error.control(), control, "{error}");
        }
    }
}

/// RFC 5040 Figure 10.
#[test]
fn headers_are_shown_by_error_type() {
    let shown = |error: TerminateError| (error.shows_ddp_header(), error.shows_read_request());
    assert_eq!(shown(RdmapError::LocalCatastrophic.into()), (false, false));
    assert_eq!(shown(RdmapError::BaseOrBounds.into()), (true, true));
    assert_eq!(shown(RdmapError::UnexpectedOpcode.into()), (true, false));
    assert_eq!(shown(DdpError::InvalidQn.into()), (true, false));
    assert_eq!(shown(MpaError::CrcMismatch.into()), (false, false));
}
