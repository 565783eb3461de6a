use super::DdpError;

/// RFC 5041 section 7.2, the whole table.
#[test]
fn every_error_has_its_type_and_code() {
    let table = [
        (1, 0, DdpError::InvalidStag),
        (1, 1, DdpError::BaseOrBounds),
        (1, 2, DdpError::StagNotAssociated),
        (1, 3, DdpError::ToWrap),
        (1, 4, DdpError::TaggedVersion),
        (2, 1, DdpError::InvalidQn),
        (2, 2, DdpError::NoBuffer),
        (2, 3, DdpError::MsnRange),
        (2, 4, DdpError::InvalidMo),
        (2, 5, DdpError::MessageTooLong),
        (2, 6, DdpError::UntaggedVersion),
        (0, 0, DdpError::LocalCatastrophic),
    ];
    for (error_type, code, error) in table {
        assert_eq!((error.error_type(), error.code()), (error_type, code));
        assert_eq!(DdpError::from_numbers(error_type, code), Some(error));
    }
    assert_eq!(DdpError::from_numbers(1, 5), None);
    assert_eq!(DdpError::from_numbers(2, 0), None);
    assert_eq!(DdpError::from_numbers(3, 0), None);
}
